// SPDX-License-Identifier: Apache-2.0
// What this build is made of and offers, for Python.
#include <nanobind/nanobind.h>

#include "myops/cuda.hpp"
#include "myops/kernels.hpp"
#include "myops/norm.hpp"
#include "ops/op_table.hpp"

namespace nb = nanobind;

namespace {

void append_ops(nb::list& result, const char* kind, const myops::OpList& ops) {
  for (const myops::OpInfo& op : ops) {
    nb::list inputs;
    for (std::size_t i = 0; i < op.input_count; ++i) inputs.append(op.input_names[i]);
    nb::dict attributes;
    nb::dict lowest;
    for (std::size_t i = 0; i < op.attribute_count; ++i) {
      attributes[op.attributes[i].name] = op.attributes[i].default_value;
      lowest[op.attributes[i].name] = op.attributes[i].lowest;
    }
    nb::dict entry;
    entry["name"] = op.name;
    entry["torch_name"] = op.torch_name;
    entry["inputs"] = inputs;
    entry["attributes"] = attributes;
    entry["lowest"] = lowest;
    nb::list outputs;
    for (std::size_t i = 0; i < op.output_count; ++i) outputs.append(op.output_names[i]);
    entry["outputs"] = outputs;
    entry["kind"] = kind;
    entry["broadcasts"] = op.broadcasts;
    result.append(entry);
  }
}

nb::list list_ops() {
  nb::list result;
  append_ops(result, "elementwise", myops::ops());
  append_ops(result, "norm", myops::norm_ops());
  return result;
}

nb::list list_isas() {
  nb::list result;
  const myops::IsaList isas = myops::cpu_isas();
  for (std::size_t i = 0; i < isas.count; ++i) result.append(isas.name[i]);
  return result;
}

}  // namespace

NB_MODULE(_build_info, module) {
  module.doc() = "What this build of myops is made of and offers.";
  module.def(
      "ops", &list_ops,
      "One dict per operator: name, torch_name, kind (elementwise or norm), inputs, outputs, "
      "attributes (name to default), lowest (name to least value), broadcasts.");
  module.def("isas", &list_isas,
             "The ISAs of this build that this machine can run, slowest first.");
  module.def("isa", &myops::cpu_isa, "The ISA in use. MYOPS_ISA in the environment forces one.");
  module.def(
      "cuda_message", [] { return nb::str(myops::cuda_status().message()); },
      "Empty where CUDA kernels are built in; else what to do.");
  module.attr("version") = MYOPS_VERSION;
  module.attr("compiler") = MYOPS_COMPILER;
  module.attr("cuda_compiler") = MYOPS_CUDA_COMPILER;  // "" in a build without CUDA
  module.attr("cuda_architectures") = myops::cuda_architectures();
  module.attr("torch_version") = MYOPS_TORCH_VERSION;  // "" in a build without the torch library
  module.attr("ort_api_version") = MYOPS_ORT_API_VERSION;  // 0 in a build without the plugin
  nb::list dtypes;
  for (std::size_t i = 0; i < myops::dtype_count; ++i) {
    dtypes.append(myops::dtype_name(static_cast<myops::DType>(i)));
  }
  module.attr("dtypes") = dtypes;
}
