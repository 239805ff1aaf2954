"""Runs an exported script with stand-ins for what IDA and Ghidra give it, and prints the calls it makes.

    disassemblers.py ida|ghidra SCRIPT IMAGE_BASE [FUNCTION ...]

The stand-ins have the names the scripts may use and nothing else, and take only the types the real ones
take (IDA's SDK, Ghidra's FlatProgramAPI).
"""

import json
import runpy
import sys
import types

calls = []


def want(value, kind):
    if type(value) is not kind:
        raise TypeError(f"{value!r} is no {kind.__name__}")
    return value


def module(name, **content):
    made = types.ModuleType(name)
    made.__dict__.update(content)
    sys.modules[name] = made


def ida(base):
    nowarn, force = 0x100, 0x800

    def set_name(ea, name, flags=0):
        calls.append(["name", want(ea, int), want(name, str)])
        assert flags == nowarn | force, flags
        return True

    def set_cmt(ea, comment, repeatable):
        calls.append(["comment", want(ea, int), want(comment, str)])
        assert repeatable in (0, 1), repeatable
        return True

    module("idaapi", get_imagebase=lambda: base)
    module("ida_name", set_name=set_name, SN_NOWARN=nowarn, SN_FORCE=force)
    module("idc", set_cmt=set_cmt)
    return {}


class Address:
    def __init__(self, offset):
        self.offset = offset

    def add(self, displacement):
        return Address(self.offset + want(displacement, int))


class Function:
    def __init__(self, address):
        self.address = address

    def setName(self, name, source):
        assert source == "USER_DEFINED", source
        calls.append(["function", self.address.offset, want(name, str)])


def ghidra(base, functions):
    def create_label(address, name, make_primary):
        assert make_primary is True
        calls.append(["name", want(address, Address).offset, want(name, str)])

    def set_plate_comment(address, comment):
        calls.append(["comment", want(address, Address).offset, want(comment, str)])
        return True

    def function_at(address):
        return Function(address) if want(address, Address).offset in functions else None

    for package in ("ghidra", "ghidra.program", "ghidra.program.model"):
        module(package)
    module("ghidra.program.model.symbol", SourceType=types.SimpleNamespace(USER_DEFINED="USER_DEFINED"))
    program = types.SimpleNamespace(getImageBase=lambda: Address(base))
    return {
        "currentProgram": program,
        "getFunctionAt": function_at,
        "createLabel": create_label,
        "setPlateComment": set_plate_comment,
    }


which, script, base, *functions = sys.argv[1:]
base = int(base, 0)
given = ida(base) if which == "ida" else ghidra(base, {int(function, 0) for function in functions})
runpy.run_path(script, init_globals=given, run_name="__main__")
print(json.dumps(calls))
