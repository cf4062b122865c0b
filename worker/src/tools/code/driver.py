# Runs inside the sandbox: keeps one Python's variables between the calls of an attempt.
# Requests come as frames on stdin, answers go as frames to what was stderr (see ../code.rs).
import ast
import functools
import importlib.util
import json
import linecache
import os
import struct
import sys
import traceback
import types
import warnings


class MarkSaved:
    """Notes which figures the code saved itself, from matplotlib's first import on."""

    def find_spec(self, name, path=None, target=None):
        if name != "matplotlib.figure":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            savefig = module.Figure.savefig

            @functools.wraps(savefig)
            def save_and_mark(self, where, *args, **kwargs):
                result = savefig(self, where, *args, **kwargs)
                if isinstance(where, (str, os.PathLike)):
                    self._is_saved = True
                return result

            module.Figure.savefig = save_and_mark

        spec.loader.exec_module = exec_module
        return spec


def save_figures(prefix, cell):
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is None:
        return []
    saved = []
    try:
        for number in pyplot.get_fignums():
            figure = pyplot.figure(number)
            if not getattr(figure, "_is_saved", False):
                path = "%s-%d-%d.png" % (prefix, cell, len(saved) + 1)
                os.makedirs(os.path.dirname("/workspace/" + path), exist_ok=True)
                figure.savefig("/workspace/" + path)
                saved.append(path)
        pyplot.close("all")
    except Exception as error:
        complain("figures could not be saved: %r" % (error,))
    return saved


def complain(text):
    try:
        print(text, file=sys.stderr)
    except BaseException:
        pass  # the code closed its outputs


def show_traceback():
    kind, error, trace = sys.exc_info()
    while trace and not trace.tb_frame.f_code.co_filename.startswith("<cell "):
        trace = trace.tb_next
    try:
        traceback.print_exception(kind, error, trace)
    except BaseException:
        complain(kind.__name__)


def execute(code, cell, names):
    """Runs the code; true when it did not raise or exit with an error."""
    file = "<cell %d>" % cell
    linecache.cache[file] = (len(code), None, code.splitlines(True), file)
    try:
        tree = ast.parse(code, file)
        last = None
        if tree.body and isinstance(tree.body[-1], ast.Expr):
            last = ast.Expression(tree.body.pop().value)
        exec(compile(tree, file, "exec"), names)
        if last is not None:
            value = eval(compile(last, file, "eval"), names)
            if value is not None:
                print(repr(value))
    except SystemExit as error:
        if error.code not in (None, 0):
            complain("exit: %s" % (error.code,))
            return False
    except BaseException:
        show_traceback()
        return False
    return True


def flush():
    for stream in {sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__}:
        try:
            stream.flush()
        except BaseException:
            pass


def main():
    # Copies that no child of the code inherits; the code itself gets an empty stdin and one output.
    requests = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(2), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(1, 2)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="replace", line_buffering=True)
    sys.argv = [""]
    sys.path.insert(0, "/workspace")
    sys.meta_path.insert(0, MarkSaved())
    warnings.filterwarnings("ignore", message=".*non-interactive.*")
    module = types.ModuleType("__main__")
    module.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = module
    me = os.getpid()

    def answer(value):
        body = json.dumps(value).encode()
        answers.write(struct.pack(">I", len(body)) + body)
        answers.flush()

    answer({})
    while True:
        head = requests.read(4)
        if len(head) < 4:
            return
        request = json.loads(requests.read(struct.unpack(">I", head)[0]))
        ran = execute(request["code"], request["cell"], module.__dict__)
        if os.getpid() != me:
            # A fork that ran to the end of the code.
            flush()
            os._exit(0)
        figures = save_figures(request["figures"], request["cell"])
        flush()
        try:
            os.write(1, b"\0" + request["marker"].encode() + b"\0")
        except OSError:
            pass
        answer({"figures": figures, "failed": not ran})


main()
