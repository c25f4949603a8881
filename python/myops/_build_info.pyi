# SPDX-License-Identifier: Apache-2.0
from typing import TypedDict

class OpDescription(TypedDict):
    name: str
    torch_name: str
    kind: str
    inputs: list[str]
    outputs: list[str]
    attributes: dict[str, float]
    lowest: dict[str, float]
    broadcasts: bool

version: str
compiler: str
cuda_compiler: str
cuda_architectures: str
torch_version: str
ort_api_version: int
dtypes: list[str]

def ops() -> list[OpDescription]: ...
def isas() -> list[str]: ...
def isa() -> str: ...
def cuda_message() -> str: ...
