/* The functions of libcuda.so.1 that torch's libraries link. None is called: the runtime does not need a driver. */

#define ANSWER(name) \
    int name(void) { return 0; }

int cuDriverGetVersion(int *version) {
    *version = 13000;
    return 0;
}
ANSWER(cuInit)
ANSWER(cuCtxGetCurrent)
ANSWER(cuCtxSetCurrent)
ANSWER(cuDeviceGet)
ANSWER(cuDeviceGetAttribute)
ANSWER(cuDevicePrimaryCtxGetState)
ANSWER(cuDevicePrimaryCtxRetain)
ANSWER(cuFuncGetAttribute)
ANSWER(cuFuncSetAttribute)
ANSWER(cuFuncSetCacheConfig)
ANSWER(cuGetErrorString)
ANSWER(cuLaunchCooperativeKernel)
ANSWER(cuLaunchKernel)
ANSWER(cuLinkAddData_v2)
ANSWER(cuLinkComplete)
ANSWER(cuLinkCreate_v2)
ANSWER(cuModuleGetFunction)
ANSWER(cuModuleLoad)
ANSWER(cuModuleLoadData)
ANSWER(cuModuleLoadDataEx)
ANSWER(cuModuleUnload)
ANSWER(cuOccupancyMaxActiveBlocksPerMultiprocessor)
ANSWER(cuPointerGetAttribute)
ANSWER(cuTensorMapEncodeTiled)
