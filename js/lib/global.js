// navigator.ml and the interfaces as a browser has them, on a global object.
import { create, define } from './webidl.js';

/** Defines the interfaces, and `navigator.ml`, on `scope`. */
export function install(scope, interfaces, ml) {
  for (const [name, value] of Object.entries(interfaces)) {
    Object.defineProperty(scope, name, { value, configurable: true, writable: true });
  }
  if (scope.navigator === undefined) {
    const { Navigator } = {
      Navigator: class Navigator { constructor() { throw new TypeError('Illegal constructor'); } },
    };
    define(Navigator, {});
    const navigator = create(Navigator, {});
    Object.defineProperty(scope, 'Navigator', { value: Navigator, configurable: true, writable: true });
    Object.defineProperty(scope, 'navigator', {
      get: () => navigator, set: undefined, enumerable: true, configurable: true,
    });
  }
  const { navigator } = scope;
  const descriptor = Object.getOwnPropertyDescriptor({
    get ml() {
      if (this !== navigator) throw new TypeError('ml: Illegal invocation');
      return ml;
    },
  }, 'ml');
  Object.defineProperty(Object.getPrototypeOf(navigator), 'ml', {
    get: descriptor.get, set: undefined, enumerable: true, configurable: true,
  });
}
