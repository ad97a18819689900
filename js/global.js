// import 'webnn-vk/global' defines navigator.ml and the interfaces on the global object.
import { installGlobals } from './index.js';

installGlobals();
