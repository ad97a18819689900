/* A Vulkan driver that does what another one does, save for what a file beside it says.

   The file is this library's name with ".conf": lines of NAME VALUE. "base PATH" is the driver to
   pass on to; "name TEXT" and "type NUMBER" change the device's name and VkPhysicalDeviceType;
   "no_heaps 1" and "no_devices 1" take them away; "vkAnything WORD" makes that call crash, abort,
   hang, or return a (negative) VkResult. No header of Vulkan is needed. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef void (*Function)(void);
typedef Function (*Lookup)(void *, const char *);

static char names[64][128], values[64][512];
static int count;
static void *base;

static __attribute__((constructor)) void start(void) {
    Dl_info about;
    char path[4096];
    if (!dladdr((void *)start, &about)) abort();
    snprintf(path, sizeof path, "%s.conf", about.dli_fname);
    FILE *file = fopen(path, "r");
    while (file && count < 64 && fscanf(file, "%127s %511[^\n]", names[count], values[count]) == 2)
        count++;
    if (file) fclose(file);
}

static const char *said(const char *name) {
    for (int i = 0; i < count; i++)
        if (!strcmp(names[i], name)) return values[i];
    return NULL;
}

static void *of_base(const char *name) {
    if (!base) base = dlopen(said("base"), RTLD_NOW | RTLD_LOCAL);
    if (!base) abort();
    return dlsym(base, name);
}

/* What fails: any arguments, an int for all results. */
static int crash(void) { *(volatile int *)0 = 1; return 0; }
static int end(void) { abort(); }
static int hang(void) { for (;;) sleep(1); }
#define RETURNS(n) static int returns_##n(void) { return -n; }
RETURNS(1) RETURNS(2) RETURNS(3) RETURNS(4) RETURNS(5) RETURNS(6) RETURNS(7) RETURNS(8) RETURNS(9)
RETURNS(10) RETURNS(11) RETURNS(12) RETURNS(13)
static int (*const returning[])(void) = {
    returns_13, returns_1, returns_2, returns_3, returns_4, returns_5, returns_6, returns_7,
    returns_8, returns_9, returns_10, returns_11, returns_12, returns_13};

struct Properties { uint32_t api, driver, vendor, device, type; char name[256]; };
struct Properties2 { int32_t type; void *next; struct Properties properties; };

static void (*real_properties)(void *, struct Properties *);
static void (*real_properties2)(void *, struct Properties2 *);
static void (*real_memory)(void *, void *);
static void change(struct Properties *properties) {
    if (said("name")) snprintf(properties->name, 256, "%s", said("name"));
    if (said("type")) properties->type = (uint32_t)atoi(said("type"));
}
static void properties(void *device, struct Properties *out) {
    real_properties(device, out);
    change(out);
}
static void properties2(void *device, struct Properties2 *out) {
    real_properties2(device, out);
    change(&out->properties);
}
static void memory(void *device, void *out) {
    real_memory(device, out);
    memset(out, 0, 4 + 32 * 8 + 4 + 16 * 16);
}
static int no_devices(void *instance, uint32_t *number, void *out) {
    (void)instance, (void)out;
    *number = 0;
    return 0;
}

static Function wrapped(const char *name, Function real) {
    const char *word = said(name);
    if (!real) return NULL;
    if (word) {
        if (!strcmp(word, "crash")) return (Function)crash;
        if (!strcmp(word, "abort")) return (Function)end;
        if (!strcmp(word, "hang")) return (Function)hang;
        int code = -atoi(word);
        return (Function)returning[code >= 1 && code <= 13 ? code : 0];
    }
    if (!strcmp(name, "vkGetPhysicalDeviceProperties")) {
        real_properties = (void (*)(void *, struct Properties *))real;
        return (Function)properties;
    }
    if (!strncmp(name, "vkGetPhysicalDeviceProperties2", 30)) {
        real_properties2 = (void (*)(void *, struct Properties2 *))real;
        return (Function)properties2;
    }
    if (!strcmp(name, "vkGetPhysicalDeviceMemoryProperties") && said("no_heaps")) {
        real_memory = (void (*)(void *, void *))real;
        return (Function)memory;
    }
    if (!strcmp(name, "vkEnumeratePhysicalDevices") && said("no_devices"))
        return (Function)no_devices;
    return real;
}

static Lookup real_device_lookup;
static Function device_lookup(void *device, const char *name) {
    return wrapped(name, real_device_lookup(device, name));
}

Function vk_icdGetInstanceProcAddr(void *instance, const char *name) {
    Function real = ((Lookup)of_base("vk_icdGetInstanceProcAddr"))(instance, name);
    if (real && !strcmp(name, "vkGetDeviceProcAddr")) {
        real_device_lookup = (Lookup)real;
        return (Function)device_lookup;
    }
    return wrapped(name, real);
}

Function vk_icdGetPhysicalDeviceProcAddr(void *instance, const char *name) {
    Lookup real = (Lookup)of_base("vk_icdGetPhysicalDeviceProcAddr");
    return real ? wrapped(name, real(instance, name)) : NULL;
}

int vk_icdNegotiateLoaderICDInterfaceVersion(uint32_t *version) {
    return ((int (*)(uint32_t *))of_base("vk_icdNegotiateLoaderICDInterfaceVersion"))(version);
}
