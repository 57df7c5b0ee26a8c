// A CUDA runtime for machines without a GPU. Preloaded, it answers in place of libcudart, which torch links dynamically.
//
// Memory of a device is memory of the host, and what is launched on a stream is done at once. Kernels cannot run: launching
// one is an error that names it, because kernels.py computes every operation of torch before a kernel is needed. Recorded
// graphs are numbers; launching one calls the function that kernels.py sets.
//
// FAKE_CUDA_DEVICES: number of devices, 1 by default. FAKE_CUDA_MEMORY: bytes of each, 8 GiB by default.

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace {

constexpr int PINNED = -1;
constexpr int CAPABILITY_MAJOR = 9, PROCESSORS = 132, SHARED_MEMORY = 232448;
constexpr int MOST_DEVICES = 8;

struct Block {
  size_t size;
  int owner;  // a device, or PINNED
};

std::mutex guard;  // of everything below that is not atomic
std::map<char *, Block> blocks;
std::map<const void *, std::string> kernel_names;
size_t used[MOST_DEVICES], limit = 0;
std::atomic<long> next_handle{1}, next_graph{1};
cudaStream_t capturing = nullptr;
unsigned long long capture = 0;
void (*replay)(long) = nullptr;
thread_local int current = 0;
thread_local cudaError_t last_error = cudaSuccess;

long setting(const char *name, long otherwise) {
  const char *text = getenv(name);
  return text ? atol(text) : otherwise;
}

int devices() {
  static int count = setting("FAKE_CUDA_DEVICES", 1);
  return count;
}

size_t memory() {
  if (!limit) limit = setting("FAKE_CUDA_MEMORY", 8L << 30);
  return limit;
}

cudaError_t failed(cudaError_t error) { return last_error = error; }

cudaError_t allocate(void **address, size_t size, int owner) {
  std::lock_guard<std::mutex> held(guard);
  *address = nullptr;
  if (owner != PINNED && used[owner] + size > memory()) return failed(cudaErrorMemoryAllocation);
  if (!(*address = aligned_alloc(512, (size + 511) / 512 * 512))) return failed(cudaErrorMemoryAllocation);
  if (owner != PINNED) {
    memset(*address, 0xFF, size);  // floating-point numbers are NaN until they are written
    used[owner] += size;
  }
  blocks[(char *)*address] = {size, owner};
  return cudaSuccess;
}

cudaError_t release(void *address) {
  if (!address) return cudaSuccess;
  std::lock_guard<std::mutex> held(guard);
  auto block = blocks.find((char *)address);
  if (block == blocks.end()) return failed(cudaErrorInvalidValue);
  if (block->second.owner != PINNED) used[block->second.owner] -= block->second.size;
  blocks.erase(block);
  free(address);
  return cudaSuccess;
}

cudaError_t refuse(const void *kernel) {
  std::lock_guard<std::mutex> held(guard);
  auto name = kernel_names.find(kernel);
  fprintf(stderr, "fake CUDA: no kernel can run: %s\n", name == kernel_names.end() ? "?" : name->second.c_str());
  return failed(cudaErrorNotSupported);
}

double milliseconds() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

template <class Handle>
cudaError_t create(Handle *handle) {
  *handle = (Handle)(next_handle++ * 64);
  return cudaSuccess;
}

}  // namespace

// For kernels.py

EXPORTED void fake_cuda_on_replay(void (*function)(long)) { replay = function; }
EXPORTED long fake_cuda_capture() { return capturing ? (long)capture : 0; }
EXPORTED void fake_cuda_limit(size_t bytes) { limit = bytes; }

// Devices

EXPORTED cudaError_t cudaGetDeviceCount(int *count) {
  *count = devices();
  return cudaSuccess;
}
EXPORTED cudaError_t cudaGetDevice(int *device) {
  *device = current;
  return cudaSuccess;
}
EXPORTED cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= devices()) return failed(cudaErrorInvalidDevice);
  current = device;
  return cudaSuccess;
}
EXPORTED cudaError_t cudaDriverGetVersion(int *version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
EXPORTED cudaError_t cudaRuntimeGetVersion(int *version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
EXPORTED cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int) {
  memset(properties, 0, sizeof *properties);
  strcpy(properties->name, "Fake GPU");
  properties->major = CAPABILITY_MAJOR;
  properties->totalGlobalMem = memory();
  properties->multiProcessorCount = PROCESSORS;
  properties->warpSize = 32;
  properties->maxThreadsPerBlock = 1024;
  properties->maxThreadsPerMultiProcessor = 2048;
  for (int axis = 0; axis < 3; ++axis) {
    properties->maxThreadsDim[axis] = axis < 2 ? 1024 : 64;
    properties->maxGridSize[axis] = axis ? 65535 : 2147483647;
  }
  properties->sharedMemPerBlock = 49152;
  properties->sharedMemPerBlockOptin = SHARED_MEMORY;
  properties->sharedMemPerMultiprocessor = SHARED_MEMORY + 1024;
  properties->regsPerBlock = properties->regsPerMultiprocessor = 65536;
  properties->l2CacheSize = 50 << 20;
  properties->textureAlignment = 512;
  return cudaSuccess;
}
EXPORTED cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int) {
  *value = attribute == cudaDevAttrComputeCapabilityMajor      ? CAPABILITY_MAJOR
           : attribute == cudaDevAttrMultiProcessorCount       ? PROCESSORS
           : attribute == cudaDevAttrMaxSharedMemoryPerBlockOptin ? SHARED_MEMORY
                                                               : 0;
  return cudaSuccess;
}
EXPORTED cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
EXPORTED cudaError_t cudaDeviceCanAccessPeer(int *possible, int, int) {
  *possible = 0;
  return cudaSuccess;
}
EXPORTED cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return cudaSuccess; }
EXPORTED cudaError_t cudaDeviceGetPCIBusId(char *text, int size, int device) {
  snprintf(text, size, "0000:%02x:00.0", device);
  return cudaSuccess;
}
EXPORTED cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }

// Errors

EXPORTED cudaError_t cudaGetLastError() {
  cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}
EXPORTED cudaError_t cudaPeekAtLastError() { return last_error; }
EXPORTED const char *cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "out of memory" : "an error of the fake CUDA runtime";
}
EXPORTED const char *cudaGetErrorName(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation" : "cudaErrorUnknown";
}

// Memory

EXPORTED cudaError_t cudaMalloc(void **address, size_t size) { return allocate(address, size, current); }
EXPORTED cudaError_t cudaMallocAsync(void **address, size_t size, cudaStream_t) { return allocate(address, size, current); }
EXPORTED cudaError_t cudaFree(void *address) { return release(address); }
EXPORTED cudaError_t cudaFreeAsync(void *address, cudaStream_t) { return release(address); }
EXPORTED cudaError_t cudaHostAlloc(void **address, size_t size, unsigned) { return allocate(address, size, PINNED); }
EXPORTED cudaError_t cudaFreeHost(void *address) { return release(address); }
EXPORTED cudaError_t cudaHostRegister(void *, size_t, unsigned) { return cudaSuccess; }
EXPORTED cudaError_t cudaHostUnregister(void *) { return cudaSuccess; }
EXPORTED cudaError_t cudaMemGetInfo(size_t *free, size_t *total) {
  *total = memory();
  *free = *total - used[current];
  return cudaSuccess;
}
EXPORTED cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *attributes, const void *address) {
  memset(attributes, 0, sizeof *attributes);
  attributes->type = cudaMemoryTypeUnregistered;
  std::lock_guard<std::mutex> held(guard);
  auto block = blocks.upper_bound((char *)address);
  if (block == blocks.begin() || (--block)->first + block->second.size <= (char *)address) return cudaSuccess;
  bool pinned = block->second.owner == PINNED;
  attributes->type = pinned ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
  attributes->device = pinned ? 0 : block->second.owner;
  attributes->devicePointer = (void *)address;
  attributes->hostPointer = pinned ? (void *)address : nullptr;
  return cudaSuccess;
}
EXPORTED cudaError_t cudaMemcpy(void *to, const void *from, size_t size, cudaMemcpyKind) {
  memmove(to, from, size);
  return cudaSuccess;
}
EXPORTED cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, cudaMemcpyKind, cudaStream_t) {
  memmove(to, from, size);
  return cudaSuccess;
}
EXPORTED cudaError_t cudaMemcpyPeerAsync(void *to, int, const void *from, int, size_t size, cudaStream_t) {
  memmove(to, from, size);
  return cudaSuccess;
}
EXPORTED cudaError_t cudaMemset(void *to, int value, size_t size) {
  memset(to, value, size);
  return cudaSuccess;
}
EXPORTED cudaError_t cudaMemsetAsync(void *to, int value, size_t size, cudaStream_t) {
  memset(to, value, size);
  return cudaSuccess;
}

// Streams and events

EXPORTED cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned) { return create(stream); }
EXPORTED cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned, int) { return create(stream); }
EXPORTED cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
EXPORTED cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
EXPORTED cudaError_t cudaStreamQuery(cudaStream_t) { return cudaSuccess; }
EXPORTED cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }
EXPORTED cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned) {
  *event = (cudaEvent_t) new double(0);
  return cudaSuccess;
}
EXPORTED cudaError_t cudaEventCreate(cudaEvent_t *event) { return cudaEventCreateWithFlags(event, 0); }
EXPORTED cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete (double *)event;
  return cudaSuccess;
}
EXPORTED cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t, unsigned) {
  *(double *)event = milliseconds();
  return cudaSuccess;
}
EXPORTED cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecordWithFlags(event, stream, 0);
}
EXPORTED cudaError_t cudaEventQuery(cudaEvent_t) { return cudaSuccess; }
EXPORTED cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
EXPORTED cudaError_t cudaEventElapsedTime(float *duration, cudaEvent_t from, cudaEvent_t to) {
  *duration = *(double *)to - *(double *)from;
  return cudaSuccess;
}

// Recorded graphs, one at a time

EXPORTED cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (capturing) return failed(cudaErrorStreamCaptureUnsupported);
  capturing = stream;
  capture = next_graph++;
  return cudaSuccess;
}
EXPORTED cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t *graph) {
  capturing = nullptr;
  *graph = (cudaGraph_t)(long)capture;
  return cudaSuccess;
}
EXPORTED cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status) {
  *status = capturing && capturing == stream ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
EXPORTED cudaError_t cudaStreamGetCaptureInfo(
    cudaStream_t stream, cudaStreamCaptureStatus *status, unsigned long long *id, cudaGraph_t *graph,
    const cudaGraphNode_t **, const cudaGraphEdgeData **, size_t *count) {
  cudaStreamIsCapturing(stream, status);
  if (id) *id = capture;
  if (graph) *graph = (cudaGraph_t)(long)capture;
  if (count) *count = 0;
  return cudaSuccess;
}
EXPORTED cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode *) { return cudaSuccess; }
EXPORTED cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *made, cudaGraph_t graph, unsigned long long) {
  *made = (cudaGraphExec_t)graph;
  return cudaSuccess;
}
EXPORTED cudaError_t cudaGraphGetNodes(cudaGraph_t, cudaGraphNode_t *, size_t *count) {
  *count = 1;
  return cudaSuccess;
}
EXPORTED cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t) {
  replay((long)graph);
  return cudaSuccess;
}
EXPORTED cudaError_t cudaGraphDestroy(cudaGraph_t) { return cudaSuccess; }
EXPORTED cudaError_t cudaGraphExecDestroy(cudaGraphExec_t) { return cudaSuccess; }

// The driver, as far as torch asks for its functions by name: the state of a context, and memory whose addresses are
// reserved first and filled later (expandable segments).

static CUresult no_answer() { return CUDA_SUCCESS; }
static CUresult context_state(CUdevice, unsigned *flags, int *active) {
  *flags = 0;
  *active = 1;
  return CUDA_SUCCESS;
}
static CUresult granularity(size_t *size, const CUmemAllocationProp *, CUmemAllocationGranularity_flags) {
  *size = 2 << 20;
  return CUDA_SUCCESS;
}
static CUresult reserve(CUdeviceptr *address, size_t size, size_t, CUdeviceptr, unsigned long long) {
  void *found = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  *address = (CUdeviceptr)found;
  return found == MAP_FAILED ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}
static CUresult free_addresses(CUdeviceptr address, size_t size) {
  munmap((void *)address, size);
  return CUDA_SUCCESS;
}
static CUresult create_memory(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *of, unsigned long long) {
  std::lock_guard<std::mutex> held(guard);
  int owner = of->location.id;
  if (used[owner] + size > memory()) return CUDA_ERROR_OUT_OF_MEMORY;
  used[owner] += size;
  *handle = (CUmemGenericAllocationHandle) new Block{size, owner};
  return CUDA_SUCCESS;
}
static CUresult release_memory(CUmemGenericAllocationHandle handle) {
  std::lock_guard<std::mutex> held(guard);
  Block *block = (Block *)handle;
  used[block->owner] -= block->size;
  delete block;
  return CUDA_SUCCESS;
}
static CUresult map_memory(CUdeviceptr address, size_t size, size_t, CUmemGenericAllocationHandle handle, unsigned long long) {
  std::lock_guard<std::mutex> held(guard);
  mprotect((void *)address, size, PROT_READ | PROT_WRITE);
  memset((void *)address, 0xFF, size);
  blocks[(char *)address] = {size, ((Block *)handle)->owner};
  return CUDA_SUCCESS;
}
static CUresult unmap_memory(CUdeviceptr address, size_t size) {
  std::lock_guard<std::mutex> held(guard);
  for (auto block = blocks.lower_bound((char *)address); block != blocks.end() && block->first < (char *)address + size;)
    block = blocks.erase(block);
  madvise((void *)address, size, MADV_DONTNEED);
  mprotect((void *)address, size, PROT_NONE);
  return CUDA_SUCCESS;
}
EXPORTED cudaError_t cudaGetDriverEntryPointByVersion(
    const char *name, void **function, unsigned, unsigned long long, cudaDriverEntryPointQueryResult *result) {
  static const std::map<std::string, void *> functions = {
      {"cuDevicePrimaryCtxGetState", (void *)context_state},
      {"cuMemGetAllocationGranularity", (void *)granularity},
      {"cuMemAddressReserve", (void *)reserve},
      {"cuMemAddressFree", (void *)free_addresses},
      {"cuMemCreate", (void *)create_memory},
      {"cuMemRelease", (void *)release_memory},
      {"cuMemMap", (void *)map_memory},
      {"cuMemUnmap", (void *)unmap_memory},
  };
  auto known = functions.find(name);
  *function = known == functions.end() ? (void *)no_answer : known->second;
  if (result) *result = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}

// Kernels

EXPORTED void **__cudaRegisterFatBinary(void *) {
  static void *handle;
  return &handle;
}
EXPORTED void __cudaRegisterFatBinaryEnd(void **) {}
EXPORTED void __cudaUnregisterFatBinary(void **) {}
EXPORTED void __cudaRegisterVar(void **, char *, char *, const char *, int, size_t, int, int) {}
EXPORTED void __cudaRegisterFunction(
    void **, const char *kernel, char *, const char *name, int, void *, void *, void *, void *, int *) {
  std::lock_guard<std::mutex> held(guard);
  kernel_names[kernel] = name;
}
static thread_local dim3 grid, block;
static thread_local size_t shared;
static thread_local void *chosen_stream;
EXPORTED unsigned __cudaPushCallConfiguration(dim3 of_grid, dim3 of_block, size_t size, struct CUstream_st *stream) {
  grid = of_grid, block = of_block, shared = size, chosen_stream = stream;
  return 0;
}
EXPORTED cudaError_t __cudaPopCallConfiguration(dim3 *of_grid, dim3 *of_block, size_t *size, void *stream) {
  *of_grid = grid, *of_block = block, *size = shared, *(void **)stream = chosen_stream;
  return cudaSuccess;
}
EXPORTED cudaError_t __cudaGetKernel(cudaKernel_t *handle, const void *kernel) {
  *handle = (cudaKernel_t)kernel;
  return cudaSuccess;
}
EXPORTED cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3, dim3, void **, size_t, cudaStream_t) {
  return refuse((void *)kernel);
}
EXPORTED cudaError_t cudaLaunchKernel(const void *kernel, dim3, dim3, void **, size_t, cudaStream_t) {
  return refuse(kernel);
}
EXPORTED cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *, const void *kernel, void **) { return refuse(kernel); }
EXPORTED cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, const void *) {
  memset(attributes, 0, sizeof *attributes);
  attributes->maxThreadsPerBlock = 1024;
  attributes->binaryVersion = attributes->ptxVersion = CAPABILITY_MAJOR * 10;
  return cudaSuccess;
}
EXPORTED cudaError_t cudaFuncSetAttribute(const void *, cudaFuncAttribute, int) { return cudaSuccess; }
