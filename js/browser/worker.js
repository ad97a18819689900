// The demo: the same calls as in Node, in a worker of a page.
import './lib/browser.js';

const context = await navigator.ml.createContext();
const builder = new MLGraphBuilder(context);
const matrix = { dataType: 'float32', shape: [2, 2] };
const a = builder.input('a', matrix);
const product = builder.matmul(a, builder.constant(matrix, new Float32Array([0, 1, 2, 3])));
const graph = await builder.build({ y: builder.add(product, builder.constant('float32', 0.5)) });
const [from, to] = await Promise.all([
  context.createTensor({ ...matrix, writable: true }),
  context.createTensor({ ...matrix, readable: true }),
]);
context.writeTensor(from, new Float32Array([1, 2, 3, 4]));
context.dispatch(graph, { a: from }, { y: to });
const y = [...new Float32Array(await context.readTensor(to))];
let refused;
try {
  builder.relu(a);
} catch (error) {
  refused = error.name;
}
postMessage({ isolated: crossOriginIsolated, devices: graph.devices, y, refused });
