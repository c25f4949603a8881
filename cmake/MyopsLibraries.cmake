# SPDX-License-Identifier: Apache-2.0
# The libraries of a list of operators: kernels, torch library, ONNX Runtime plugin. This project's
# own, and those of projects that use the installed package, come from the same sources.
include_guard()

get_filename_component(MYOPS_NATIVE_DIR ${CMAKE_CURRENT_LIST_DIR}/../native ABSOLUTE)

# A list of its own is without normalizations: their drivers are not templates of the list.
#
# myops_add_kernel_library(<target> [OP_LIST <header that defines MYOPS_ALL_OPS>])
#   <target>           static library; the list's headers are found in its include folders
#   <target>_internal  for glue and tests, which expand the list at compile time
function(myops_add_kernel_library target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "OP_LIST" "")
  set(dir ${MYOPS_NATIVE_DIR}/kernels)
  add_library(${target} STATIC ${dir}/cpu/attributes.cpp ${dir}/cpu/dispatch.cpp
                               ${dir}/cpu/finite.cpp ${dir}/cpu/op_list.cpp)
  set(norm cpu/norm.isa.cpp)
  if(arg_OP_LIST)
    target_sources(${target} PRIVATE ${dir}/cpu/no_norms.cpp)
    target_compile_definitions(${target} PRIVATE MYOPS_OP_LIST="${arg_OP_LIST}")
    set(norm "")
  endif()
  if(MYOPS_WITH_CUDA)
    target_sources(
      ${target} PRIVATE ${dir}/cuda/forward.cu ${dir}/cuda/backward.cu
                        ${dir}/cuda/double_backward.cu ${dir}/cuda/norm.cu ${dir}/cuda/kernels.cpp
                        ${dir}/cuda/passes.cpp)
    target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:${MYOPS_CUDA_FLAGS}>")
    set_source_files_properties(
      ${dir}/cuda/kernels.cpp
      PROPERTIES COMPILE_DEFINITIONS "MYOPS_CUDA_ARCHITECTURES=\"${MYOPS_CUDA_ARCHITECTURES}\"")
    # Static: a binary built here loads on machines with another toolkit, or none.
    set_target_properties(${target} PROPERTIES CUDA_RUNTIME_LIBRARY None CUDA_STANDARD 17
                                               CUDA_STANDARD_REQUIRED ON)
    target_link_libraries(${target} PRIVATE CUDA::cudart_static)
  else()
    target_sources(${target} PRIVATE ${dir}/cuda/no_cuda.cpp)
  endif()
  target_compile_features(${target} PUBLIC cxx_std_17)
  target_include_directories(
    ${target}
    PUBLIC $<BUILD_INTERFACE:${dir}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>
    PRIVATE ${dir})
  if("v4" IN_LIST MYOPS_ISAS)
    target_compile_definitions(${target} PRIVATE MYOPS_X86_ISAS=1)
  endif()
  myops_target_defaults(${target})
  set(isa_sources cpu/elementwise.isa.cpp ${norm})
  list(TRANSFORM isa_sources PREPEND ${dir}/)
  myops_add_isa_sources(${target} ${isa_sources})

  add_library(${target}_internal INTERFACE)
  target_include_directories(${target}_internal INTERFACE ${dir})
  target_link_libraries(${target}_internal INTERFACE ${target})
  if(arg_OP_LIST)
    target_compile_definitions(${target}_internal INTERFACE MYOPS_OP_LIST="${arg_OP_LIST}")
  endif()
endfunction()

# myops_add_custom_kernel_library(<target> <header that defines MYOPS_CUSTOM_OPS>): the same for
# functions over whole tensors, which are compiled once and for the CPU only.
function(myops_add_custom_kernel_library target op_list)
  set(dir ${MYOPS_NATIVE_DIR}/kernels)
  add_library(${target} STATIC ${dir}/cpu/attributes.cpp ${dir}/cpu/custom_list.cpp
                               ${dir}/cpu/finite.cpp ${dir}/cuda/no_cuda.cpp)
  target_compile_features(${target} PUBLIC cxx_std_17)
  target_include_directories(${target} PUBLIC ${dir}/include ${dir})
  target_compile_definitions(${target} PUBLIC MYOPS_OP_LIST="${op_list}")
  myops_target_defaults(${target})
  add_library(${target}_internal INTERFACE)
  target_link_libraries(${target}_internal INTERFACE ${target})
endfunction()

# myops_add_torch_library(<target> <kernel library> <output name> [WITHOUT_NORMS | CUSTOM])
function(myops_add_torch_library target kernels name)
  cmake_parse_arguments(PARSE_ARGV 3 arg "WITHOUT_NORMS;CUSTOM" "" "")
  set(dir ${MYOPS_NATIVE_DIR}/torch)
  add_library(${target} SHARED ${dir}/register.cpp ${dir}/watch.cpp)
  if(arg_CUSTOM)
    target_sources(${target} PRIVATE ${dir}/custom.cpp)
  elseif(arg_WITHOUT_NORMS)
    target_sources(${target} PRIVATE ${dir}/no_norms.cpp)
  else()
    target_sources(${target} PRIVATE ${dir}/norm.cpp ${dir}/norm_cuda.cpp ${dir}/norm_kernels.cpp)
  endif()
  set_target_properties(${target} PROPERTIES OUTPUT_NAME ${name})
  target_compile_definitions(${target} PRIVATE MYOPS_NAMESPACE="${name}")
  target_compile_features(${target} PRIVATE cxx_std_20)
  myops_target_defaults(${target})
  # at::parallel_for is a header: without -fopenmp it silently runs serial. The OpenMP runtime
  # itself is the one torch brings; linking another would put a second thread pool into the process.
  target_compile_options(${target} PRIVATE -fopenmp)
  target_link_libraries(${target} PRIVATE ${kernels}_internal Torch::library)
  set(exports ${dir}/exports.lds)
  target_link_options(${target} PRIVATE -Wl,--no-as-needed -Wl,--version-script=${exports})
  # The usual neighbour in site-packages; torch is normally loaded before this library anyway.
  set_target_properties(${target} PROPERTIES LINK_DEPENDS ${exports}
                                             INSTALL_RPATH "$ORIGIN/../../torch/lib")
endfunction()

# myops_add_ort_plugin(<target> <kernel library> <namespace> [WITHOUT_NORMS | CUSTOM])
function(myops_add_ort_plugin target kernels name)
  cmake_parse_arguments(PARSE_ARGV 3 arg "WITHOUT_NORMS;CUSTOM" "" "")
  set(dir ${MYOPS_NATIVE_DIR}/ort)
  add_library(${target} SHARED ${dir}/register.cpp ${dir}/op.cpp)
  if(arg_CUSTOM)
    target_sources(${target} PRIVATE ${dir}/custom.cpp ${dir}/no_norms.cpp)
  elseif(arg_WITHOUT_NORMS)
    target_sources(${target} PRIVATE ${dir}/elementwise.cpp ${dir}/no_norms.cpp)
  else()
    target_sources(${target} PRIVATE ${dir}/elementwise.cpp ${dir}/norm.cpp)
  endif()
  set_target_properties(${target} PROPERTIES OUTPUT_NAME ${name}_ort)
  target_compile_definitions(${target} PRIVATE MYOPS_NAMESPACE="${name}")
  target_compile_features(${target} PRIVATE cxx_std_17)
  myops_target_defaults(${target})
  target_link_libraries(${target} PRIVATE ${kernels}_internal OnnxRuntime::headers)
  set(exports ${dir}/exports.lds)
  target_link_options(${target} PRIVATE -Wl,--version-script=${exports} -Wl,--as-needed
                                        -Wl,--gc-sections)
  # ONNX Runtime unloads the library with the last session that uses it. Its tables, which are made
  # once per runtime, would be lost and made again with each load.
  target_link_options(${target} PRIVATE LINKER:-z,nodelete)
  set_target_properties(${target} PROPERTIES LINK_DEPENDS ${exports} INSTALL_RPATH "")
endfunction()
