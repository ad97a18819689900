/* A Vulkan driver around Mesa's lavapipe that records what another library computes: see capture.py.
 * It writes each compute pipeline's SPIR-V and specialisation constants to $CAPTURE_DIR, and each
 * dispatch with its push constants and the content of its uniform buffers.
 *
 *   gcc -shared -fPIC -O1 capture.c -o libcapture.so -ldl
 *   VK_ICD_FILENAMES: {"file_format_version": "1.0.0", "ICD": {"library_path": "…/libcapture.so",
 *                      "api_version": "1.3.0"}}
 *
 * Two features are reported that Dawn asks for and that compute shaders don't use. With CAPTURE_AS
 * the device has the name, the numbers and the subgroups of another one, so that libraries choose
 * their kernels for that: "1002:73bf:64:AMD Radeon RX 6800 (RADV NAVI21)". Results are wrong then. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vulkan/vulkan.h>

#define MANY 65536
#define SETS 8
#define PUSH 256
#define CALL VKAPI_CALL

typedef struct { VkBuffer buffer; VkDeviceSize offset, range; uint32_t binding; } Uniform;
typedef struct { VkDescriptorSet set; int count; Uniform uniforms[16]; } Set;
typedef struct {
  VkCommandBuffer commands; int pipeline; VkDescriptorSet sets[SETS];
  unsigned char push[PUSH]; uint32_t push_size;
} State;
typedef struct {
  State state; uint32_t groups[3]; int count; struct { uint32_t set; Uniform of; } uniforms[16];
} Record;

static void *library;
static PFN_vkGetInstanceProcAddr real_instance;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct { VkShaderModule handle; void *code; size_t size; } modules[MANY];
static VkPipeline pipelines[MANY];
static struct { VkBuffer buffer; VkDeviceMemory memory; VkDeviceSize offset; } buffers[MANY];
static Set sets[MANY];
static State states[4096];
static Record pending[MANY];
static int module_count, pipeline_count, buffer_count, set_count, state_count, pending_count;
static VkDevice the_device;

static PFN_vkGetPhysicalDeviceFeatures real_vkGetPhysicalDeviceFeatures;
static PFN_vkGetPhysicalDeviceFeatures2 real_vkGetPhysicalDeviceFeatures2;
static PFN_vkGetPhysicalDeviceFeatures2KHR real_vkGetPhysicalDeviceFeatures2KHR;
static PFN_vkGetPhysicalDeviceProperties real_vkGetPhysicalDeviceProperties;
static PFN_vkGetPhysicalDeviceProperties2 real_vkGetPhysicalDeviceProperties2;
static PFN_vkGetPhysicalDeviceProperties2KHR real_vkGetPhysicalDeviceProperties2KHR;
static PFN_vkCreateDevice real_vkCreateDevice;
static PFN_vkGetDeviceProcAddr real_vkGetDeviceProcAddr;
static PFN_vkCreateShaderModule real_vkCreateShaderModule;
static PFN_vkCreateComputePipelines real_vkCreateComputePipelines;
static PFN_vkUpdateDescriptorSets real_vkUpdateDescriptorSets;
static PFN_vkBindBufferMemory real_vkBindBufferMemory;
static PFN_vkBindBufferMemory2 real_vkBindBufferMemory2;
static PFN_vkBindBufferMemory2KHR real_vkBindBufferMemory2KHR;
static PFN_vkCmdBindPipeline real_vkCmdBindPipeline;
static PFN_vkCmdBindDescriptorSets real_vkCmdBindDescriptorSets;
static PFN_vkCmdPushConstants real_vkCmdPushConstants;
static PFN_vkCmdDispatch real_vkCmdDispatch;
static PFN_vkQueueSubmit real_vkQueueSubmit;
static PFN_vkQueueSubmit2 real_vkQueueSubmit2;
static PFN_vkQueueSubmit2KHR real_vkQueueSubmit2KHR;
static PFN_vkMapMemory map_memory;
static PFN_vkQueueWaitIdle wait_idle;

static void open_library(void) {
  if (library) return;
  library = dlopen("/usr/lib/x86_64-linux-gnu/libvulkan_lvp.so", RTLD_NOW | RTLD_LOCAL);
  if (!library) { fprintf(stderr, "capture: %s\n", dlerror()); return; }
  real_instance = (PFN_vkGetInstanceProcAddr)dlsym(library, "vk_icdGetInstanceProcAddr");
}

static void overflow(int count, int limit) {
  if (count >= limit) { fprintf(stderr, "capture: more than %d objects\n", limit); abort(); }
}

static FILE *log_file(void) {
  static FILE *file;
  char path[600];
  snprintf(path, sizeof path, "%s/log.txt", getenv("CAPTURE_DIR"));
  if (!file) file = fopen(path, "a");
  return file;
}

static void hexadecimal(const unsigned char *bytes, size_t count) {
  for (size_t i = 0; i < count; i++) fprintf(log_file(), "%02x", bytes[i]);
}

/* -- features that Dawn asks for ------------------------------------------------------------- */
static void set_features(VkPhysicalDeviceFeatures *features, VkBool32 value) {
  features->shaderSampledImageArrayDynamicIndexing = value;
  features->shaderStorageImageArrayDynamicIndexing = value;
}
static void CALL my_vkGetPhysicalDeviceFeatures(VkPhysicalDevice d, VkPhysicalDeviceFeatures *f) {
  real_vkGetPhysicalDeviceFeatures(d, f);
  set_features(f, VK_TRUE);
}
static void CALL my_vkGetPhysicalDeviceFeatures2(VkPhysicalDevice d, VkPhysicalDeviceFeatures2 *f) {
  real_vkGetPhysicalDeviceFeatures2(d, f);
  set_features(&f->features, VK_TRUE);
}
static void CALL my_vkGetPhysicalDeviceFeatures2KHR(
    VkPhysicalDevice d, VkPhysicalDeviceFeatures2 *f) {
  real_vkGetPhysicalDeviceFeatures2KHR(d, f);
  set_features(&f->features, VK_TRUE);
}
static VkResult CALL my_vkCreateDevice(VkPhysicalDevice d, const VkDeviceCreateInfo *info,
                                       const VkAllocationCallbacks *a, VkDevice *out) {
  if (info->pEnabledFeatures)
    set_features((VkPhysicalDeviceFeatures *)info->pEnabledFeatures, VK_FALSE);
  for (VkBaseOutStructure *p = (void *)info->pNext; p; p = p->pNext)
    if (p->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2)
      set_features(&((VkPhysicalDeviceFeatures2 *)p)->features, VK_FALSE);
  VkResult result = real_vkCreateDevice(d, info, a, out);
  the_device = *out;
  return result;
}

/* -- the device's name ----------------------------------------------------------------------- */
static void set_properties(VkPhysicalDeviceProperties *properties, void *more) {
  const char *as = getenv("CAPTURE_AS");
  unsigned vendor, device, subgroup;
  char name[VK_MAX_PHYSICAL_DEVICE_NAME_SIZE];
  if (!as || sscanf(as, "%x:%x:%u:%255[^\n]", &vendor, &device, &subgroup, name) != 4) return;
  properties->vendorID = vendor;
  properties->deviceID = device;
  properties->deviceType = VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU;
  strcpy(properties->deviceName, name);
  for (VkBaseOutStructure *p = more; p; p = p->pNext) {
    if (p->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES)
      ((VkPhysicalDeviceSubgroupProperties *)p)->subgroupSize = subgroup;
    if (p->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES)
      ((VkPhysicalDeviceVulkan11Properties *)p)->subgroupSize = subgroup;
  }
}
static void CALL my_vkGetPhysicalDeviceProperties(
    VkPhysicalDevice d, VkPhysicalDeviceProperties *p) {
  real_vkGetPhysicalDeviceProperties(d, p);
  set_properties(p, 0);
}
static void CALL my_vkGetPhysicalDeviceProperties2(
    VkPhysicalDevice d, VkPhysicalDeviceProperties2 *p) {
  real_vkGetPhysicalDeviceProperties2(d, p);
  set_properties(&p->properties, p->pNext);
}
static void CALL my_vkGetPhysicalDeviceProperties2KHR(
    VkPhysicalDevice d, VkPhysicalDeviceProperties2 *p) {
  real_vkGetPhysicalDeviceProperties2KHR(d, p);
  set_properties(&p->properties, p->pNext);
}

/* -- pipelines ------------------------------------------------------------------------------- */
static VkResult CALL my_vkCreateShaderModule(VkDevice d, const VkShaderModuleCreateInfo *info,
                                             const VkAllocationCallbacks *a, VkShaderModule *out) {
  VkResult result = real_vkCreateShaderModule(d, info, a, out);
  pthread_mutex_lock(&lock);
  overflow(module_count, MANY);
  void *code = malloc(info->codeSize);
  memcpy(code, info->pCode, info->codeSize);
  modules[module_count].handle = *out;
  modules[module_count].code = code;
  modules[module_count++].size = info->codeSize;
  pthread_mutex_unlock(&lock);
  return result;
}
static VkResult CALL my_vkCreateComputePipelines(
    VkDevice d, VkPipelineCache cache, uint32_t count, const VkComputePipelineCreateInfo *infos,
    const VkAllocationCallbacks *a, VkPipeline *out) {
  VkResult result = real_vkCreateComputePipelines(d, cache, count, infos, a, out);
  pthread_mutex_lock(&lock);
  for (uint32_t i = 0; result == VK_SUCCESS && i < count; i++) {
    const VkPipelineShaderStageCreateInfo *stage = &infos[i].stage;
    const void *code = 0;
    size_t size = 0;
    for (int k = module_count - 1; k >= 0 && !code; k--)
      if (modules[k].handle == stage->module) { code = modules[k].code; size = modules[k].size; }
    for (const VkBaseInStructure *p = stage->pNext; p && !code; p = p->pNext)
      if (p->sType == VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO) {
        code = ((VkShaderModuleCreateInfo *)p)->pCode;
        size = ((VkShaderModuleCreateInfo *)p)->codeSize;
      }
    overflow(pipeline_count, MANY);
    pipelines[pipeline_count] = out[i];
    char path[600];
    snprintf(path, sizeof path, "%s/pipe_%d.spv", getenv("CAPTURE_DIR"), pipeline_count);
    FILE *file = fopen(path, "wb");
    if (file) { fwrite(code, 1, size, file); fclose(file); }
    fprintf(log_file(), "pipe %d entry %s", pipeline_count++, stage->pName);
    const VkSpecializationInfo *given = stage->pSpecializationInfo;
    for (uint32_t k = 0; given && k < given->mapEntryCount; k++) {
      const VkSpecializationMapEntry *entry = &given->pMapEntries[k];
      fprintf(log_file(), " %u=", entry->constantID);
      hexadecimal((const unsigned char *)given->pData + entry->offset, entry->size);
    }
    fprintf(log_file(), "\n");
    fflush(log_file());
  }
  pthread_mutex_unlock(&lock);
  return result;
}

/* -- uniform buffers ------------------------------------------------------------------------- */
static void bound_at(VkBuffer buffer, VkDeviceMemory memory, VkDeviceSize offset) {
  overflow(buffer_count, MANY);
  buffers[buffer_count].buffer = buffer;
  buffers[buffer_count].memory = memory;
  buffers[buffer_count++].offset = offset;
}
static VkResult CALL my_vkBindBufferMemory(VkDevice d, VkBuffer buffer, VkDeviceMemory memory,
                                           VkDeviceSize offset) {
  pthread_mutex_lock(&lock);
  bound_at(buffer, memory, offset);
  pthread_mutex_unlock(&lock);
  return real_vkBindBufferMemory(d, buffer, memory, offset);
}
static VkResult CALL my_vkBindBufferMemory2(VkDevice d, uint32_t n, const VkBindBufferMemoryInfo *i) {
  pthread_mutex_lock(&lock);
  for (uint32_t k = 0; k < n; k++) bound_at(i[k].buffer, i[k].memory, i[k].memoryOffset);
  pthread_mutex_unlock(&lock);
  return (real_vkBindBufferMemory2 ? real_vkBindBufferMemory2 : real_vkBindBufferMemory2KHR)(d, n, i);
}
#define my_vkBindBufferMemory2KHR my_vkBindBufferMemory2
static Set *set_of(VkDescriptorSet handle) {
  for (int i = set_count - 1; i >= 0; i--) if (sets[i].set == handle) return &sets[i];
  overflow(set_count, MANY);
  sets[set_count].set = handle;
  return &sets[set_count++];
}
static void CALL my_vkUpdateDescriptorSets(VkDevice d, uint32_t n, const VkWriteDescriptorSet *w,
                                           uint32_t m, const VkCopyDescriptorSet *c) {
  pthread_mutex_lock(&lock);
  for (uint32_t i = 0; i < n; i++) {
    if (w[i].descriptorType != VK_DESCRIPTOR_TYPE_UNIFORM_BUFFER) continue;
    Set *set = set_of(w[i].dstSet);
    int k = 0;
    while (k < set->count && set->uniforms[k].binding != w[i].dstBinding) k++;
    overflow(k, 16);
    if (k == set->count) set->count++;
    const VkDescriptorBufferInfo *info = w[i].pBufferInfo;
    set->uniforms[k] = (Uniform){info->buffer, info->offset, info->range, w[i].dstBinding};
  }
  pthread_mutex_unlock(&lock);
  real_vkUpdateDescriptorSets(d, n, w, m, c);
}

/* -- commands -------------------------------------------------------------------------------- */
static State *state_of(VkCommandBuffer commands) {
  for (int i = 0; i < state_count; i++) if (states[i].commands == commands) return &states[i];
  overflow(state_count, 4096);
  states[state_count].commands = commands;
  return &states[state_count++];
}
static void CALL my_vkCmdBindPipeline(VkCommandBuffer c, VkPipelineBindPoint at, VkPipeline p) {
  pthread_mutex_lock(&lock);
  State *state = state_of(c);
  state->pipeline = -1;
  for (int k = pipeline_count - 1; k >= 0 && state->pipeline < 0; k--)
    if (pipelines[k] == p) state->pipeline = k;
  pthread_mutex_unlock(&lock);
  real_vkCmdBindPipeline(c, at, p);
}
static void CALL my_vkCmdBindDescriptorSets(
    VkCommandBuffer c, VkPipelineBindPoint at, VkPipelineLayout layout, uint32_t first, uint32_t n,
    const VkDescriptorSet *given, uint32_t m, const uint32_t *offsets) {
  pthread_mutex_lock(&lock);
  for (uint32_t i = 0; i < n && first + i < SETS; i++) state_of(c)->sets[first + i] = given[i];
  pthread_mutex_unlock(&lock);
  real_vkCmdBindDescriptorSets(c, at, layout, first, n, given, m, offsets);
}
static void CALL my_vkCmdPushConstants(VkCommandBuffer c, VkPipelineLayout layout,
                                       VkShaderStageFlags stages, uint32_t offset, uint32_t size,
                                       const void *values) {
  pthread_mutex_lock(&lock);
  State *state = state_of(c);
  overflow(offset + size, PUSH + 1);
  memcpy(state->push + offset, values, size);
  if (offset + size > state->push_size) state->push_size = offset + size;
  pthread_mutex_unlock(&lock);
  real_vkCmdPushConstants(c, layout, stages, offset, size, values);
}
static void CALL my_vkCmdDispatch(VkCommandBuffer c, uint32_t x, uint32_t y, uint32_t z) {
  pthread_mutex_lock(&lock);
  overflow(pending_count, MANY);
  Record *record = &pending[pending_count++];
  *record = (Record){*state_of(c), {x, y, z}, 0};
  for (uint32_t i = 0; i < SETS; i++) {
    if (!record->state.sets[i]) continue;
    Set *set = set_of(record->state.sets[i]);
    for (int k = 0; k < set->count && record->count < 16; k++) {
      record->uniforms[record->count].set = i;
      record->uniforms[record->count++].of = set->uniforms[k];
    }
  }
  pthread_mutex_unlock(&lock);
  real_vkCmdDispatch(c, x, y, z);
}
static void write_uniform(uint32_t set, const Uniform *uniform) {
  for (int k = buffer_count - 1; k >= 0; k--) {
    if (buffers[k].buffer != uniform->buffer) continue;
    void *data;
    VkDeviceSize size = uniform->range == VK_WHOLE_SIZE ? 256 : uniform->range;
    if (map_memory(the_device, buffers[k].memory, 0, VK_WHOLE_SIZE, 0, &data)) return;
    fprintf(log_file(), " %u.%u=", set, uniform->binding);
    hexadecimal((unsigned char *)data + buffers[k].offset + uniform->offset, size);
    return;
  }
}
/* Dispatches are written when they have run: the buffers have their content then. */
static VkResult submitted(VkQueue queue, VkResult result) {
  pthread_mutex_lock(&lock);
  if (pending_count) wait_idle(queue);
  for (int k = 0; k < pending_count; k++) {
    Record *r = &pending[k];
    fprintf(log_file(), "dispatch %d %u %u %u", r->state.pipeline, r->groups[0], r->groups[1],
            r->groups[2]);
    if (r->state.push_size) {
      fprintf(log_file(), " push=");
      hexadecimal(r->state.push, r->state.push_size);
    }
    for (int u = 0; u < r->count; u++) write_uniform(r->uniforms[u].set, &r->uniforms[u].of);
    fprintf(log_file(), "\n");
  }
  fflush(log_file());
  pending_count = 0;
  pthread_mutex_unlock(&lock);
  return result;
}
static VkResult CALL my_vkQueueSubmit(VkQueue q, uint32_t n, const VkSubmitInfo *i, VkFence f) {
  return submitted(q, real_vkQueueSubmit(q, n, i, f));
}
static VkResult CALL my_vkQueueSubmit2(VkQueue q, uint32_t n, const VkSubmitInfo2 *i, VkFence f) {
  return submitted(q, real_vkQueueSubmit2(q, n, i, f));
}
static VkResult CALL my_vkQueueSubmit2KHR(VkQueue q, uint32_t n, const VkSubmitInfo2 *i, VkFence f) {
  return submitted(q, real_vkQueueSubmit2KHR(q, n, i, f));
}

/* -- the driver's entry points --------------------------------------------------------------- */
static PFN_vkVoidFunction replaced(const char *name, PFN_vkVoidFunction function);
static PFN_vkVoidFunction CALL my_vkGetDeviceProcAddr(VkDevice device, const char *name) {
  map_memory = (PFN_vkMapMemory)real_vkGetDeviceProcAddr(device, "vkMapMemory");
  wait_idle = (PFN_vkQueueWaitIdle)real_vkGetDeviceProcAddr(device, "vkQueueWaitIdle");
  return replaced(name, real_vkGetDeviceProcAddr(device, name));
}
static PFN_vkVoidFunction replaced(const char *name, PFN_vkVoidFunction function) {
#define REPLACE(N) \
  if (function && !strcmp(name, #N)) { real_##N = (void *)function; return (void *)my_##N; }
  REPLACE(vkGetPhysicalDeviceFeatures) REPLACE(vkGetPhysicalDeviceFeatures2)
  REPLACE(vkGetPhysicalDeviceProperties) REPLACE(vkGetPhysicalDeviceProperties2)
  REPLACE(vkGetPhysicalDeviceProperties2KHR)
  REPLACE(vkGetPhysicalDeviceFeatures2KHR) REPLACE(vkCreateDevice) REPLACE(vkGetDeviceProcAddr)
  REPLACE(vkCreateShaderModule) REPLACE(vkCreateComputePipelines) REPLACE(vkUpdateDescriptorSets)
  REPLACE(vkBindBufferMemory) REPLACE(vkBindBufferMemory2) REPLACE(vkBindBufferMemory2KHR)
  REPLACE(vkCmdBindPipeline) REPLACE(vkCmdBindDescriptorSets) REPLACE(vkCmdPushConstants)
  REPLACE(vkCmdDispatch) REPLACE(vkQueueSubmit) REPLACE(vkQueueSubmit2)
  REPLACE(vkQueueSubmit2KHR)
  return function;
}
__attribute__((visibility("default")))
PFN_vkVoidFunction vk_icdGetInstanceProcAddr(VkInstance instance, const char *name) {
  open_library();
  return real_instance ? replaced(name, real_instance(instance, name)) : 0;
}
__attribute__((visibility("default")))
PFN_vkVoidFunction vk_icdGetPhysicalDeviceProcAddr(VkInstance instance, const char *name) {
  open_library();
  PFN_vkGetInstanceProcAddr real =
      (PFN_vkGetInstanceProcAddr)dlsym(library, "vk_icdGetPhysicalDeviceProcAddr");
  return real ? replaced(name, real(instance, name)) : 0;
}
__attribute__((visibility("default")))
VkResult vk_icdNegotiateLoaderICDInterfaceVersion(uint32_t *version) {
  open_library();
  VkResult (*real)(uint32_t *) = dlsym(library, "vk_icdNegotiateLoaderICDInterfaceVersion");
  return real ? real(version) : VK_SUCCESS;
}
