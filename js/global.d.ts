// import 'webnn-vk/global' defines these on the global object.
import type * as webnn from './index.js';

declare global {
  interface Navigator { readonly ml: webnn.ML }
  type ML = webnn.ML;
  type MLContext = webnn.MLContext;
  type MLGraph = webnn.MLGraph;
  type MLOperand = webnn.MLOperand;
  type MLTensor = webnn.MLTensor;
  type MLGraphBuilder = webnn.MLGraphBuilder;
  const MLGraphBuilder: typeof webnn.MLGraphBuilder;
}
