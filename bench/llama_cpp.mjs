// llama.cpp by node-llama-cpp: times of prompts and tokens. The folder with node_modules is the argument; the
// request is JSON on standard input (bench/llama_cpp.py), the result one line of JSON.
import {readFileSync} from "node:fs";
import {createRequire} from "node:module";
import {pathToFileURL} from "node:url";

const require = createRequire(pathToFileURL(process.argv[2] + "/package.json"));
const {getLlama} = await import(pathToFileURL(require.resolve("node-llama-cpp")));
const request = JSON.parse(readFileSync(0, "utf8"));
const gpu = request.backend === "vulkan" ? "vulkan" : false;
const llama = await getLlama({gpu, build: "never", skipDownload: true, logLevel: "error"});
if (llama.gpu !== gpu) throw new Error(`the backend is ${llama.gpu}`);
const model = await llama.loadModel({
  modelPath: request.model, gpuLayers: gpu ? "max" : 0, useMmap: true, checkTensors: false,
});
const context = await model.createContext({contextSize: 512, batchSize: 128, sequences: 1, flashAttention: false,
  threads: request.threads});
const sequence = context.getSequence();
const result = {device: gpu ? (await llama.getGpuDeviceNames())[0] : "CPU" + (request.threads ? ", 1 thread" : ""), prompts: [], steps: [], tokens: []};
for (const prompt of request.prompts) {
  await sequence.clearHistory();
  const tokens = [];
  let last = performance.now();
  for await (const token of sequence.evaluate(prompt, {temperature: 0, yieldEogToken: true})) {
    const now = performance.now();
    (tokens.length ? result.steps : result.prompts).push(now - last);
    tokens.push(token);
    if (tokens.length > request.tokens) break;
    last = performance.now();
  }
  result.tokens.push(tokens);
}
console.log(JSON.stringify(result));
process.exit(0);
