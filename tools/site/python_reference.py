"""Pages of the Python reference: docstrings of the installed package, signatures with the types of its
stubs."""
import ast
import importlib
import inspect
import re

#: Page, its module, and the classes that programs meet without naming them.
MODULES = {
    "treadle": ("treadle", ("treadle._treadle.UDPTransport",)),
    "treadle.fileio": ("treadle.fileio", ("treadle.fileio.AsyncioContext",)),
}


def page(root, name):
    module_name, extra = MODULES[name]
    module = importlib.import_module(module_name)
    types = stub_signatures(root)
    parts = [f"# {name}\n", docstring(module)]
    for item, value in members(module, extra):
        if inspect.isclass(value):
            parts += class_section(item, value, types)
        else:
            parts += [f"## {item}\n", signature(item, value, types), docstring(value)]
    return "\n".join(parts)


def public_names(module):
    """What the page tells of: functions and classes; modules of another library's shape and constants are
    left out."""
    return [name for name in module.__all__ if not name.startswith("__") and callable(getattr(module, name))]


def members(module, extra):
    for name in public_names(module):
        yield name, getattr(module, name)
    for path in extra:
        home, _, name = path.rpartition(".")
        if name not in module.__all__:
            yield name, getattr(importlib.import_module(home), name)


def class_section(item, cls, types):
    yield f"## {item}\n"
    yield signature(item, cls, types)
    yield docstring(cls)
    for name in sorted(set(public_members(cls))):
        value = inspect.getattr_static(cls, name)
        value = value if inspect.isdatadescriptor(value) else getattr(cls, name)
        yield f"### {item}.{name}\n"
        yield signature(f"{item}.{name}", value, types, owners=[base.__name__ for base in cls.__mro__])
        yield docstring(value, cls, name)


def public_members(cls):
    """What the class and its bases of treadle define; what asyncio's base class has stands in asyncio's
    documentation."""
    for base in cls.__mro__:
        if base.__module__.startswith("treadle"):
            yield from {
                name
                for name in vars(base)
                if not name.startswith("_")
                and not isinstance(vars(base)[name], type)
                and not is_plain(vars(base)[name])
            }


def is_plain(value):
    if inspect.ismemberdescriptor(value) and not value.__doc__:  # a slot of asyncio's, in its documentation
        return True
    return not (
        callable(value)
        or inspect.isdatadescriptor(value)
        or isinstance(value, (classmethod, staticmethod, property))
    )


def docstring(value, cls=None, name=""):
    """The docstring as Markdown: lines of the form "name: text" become a list."""
    text = inspect.getdoc(value) or ""
    if cls is not None and not text:
        text = next(
            (inspect.getdoc(getattr(base, name)) or "" for base in cls.__mro__[1:] if hasattr(base, name)), ""
        )
    lines, listed = [], False
    for line in text.replace("``", "`").replace("<", "&lt;").splitlines():
        option = re.match(r"([a-z_]+(?:, [a-z_]+)*): (.*)", line) if lines else None
        if option and not listed and lines[-1]:
            lines.append("")
        if option:
            line = f"- **{option.group(1)}**: {option.group(2)}"
        elif listed and line and re.match(r"[A-Z]", line):
            lines.append("")
            listed = False
        listed = bool(option) or (listed and bool(line))
        lines.append(line)
    return "\n".join(lines) + "\n"


def signature(name, value, types, owners=()):
    last = name.rpartition(".")[2]
    keys = [f"{owner}.{last}" for owner in owners] or [last]
    known = next((types[key] for key in keys if key in types), None)
    if known is None:
        known = runtime_signature(value)
    if known is None or (inspect.isclass(value) and known[1] == "()"):
        return ""
    prefix, text = known
    return f"```python\n{prefix}{name}{text}\n```\n"


def runtime_signature(value):
    if not callable(value):
        return "", ""
    try:
        text = str(inspect.signature(value))
    except (TypeError, ValueError):
        return None
    text = re.sub(r"(?<=[:>] )'([^']*)'", r"\1", text)
    text = re.sub(r"<(\w+\.\w+): [^>]*>", r"\1", text)  # a member of an enum
    return "async " * inspect.iscoroutinefunction(value), re.sub(r"\(self(: \w+)?(, /)?(, )?", "(", text)


def stub_signatures(root):
    """Signature texts of the stubs, by "Class.method" or "function", as pairs of a prefix and the rest."""
    found = {}
    for path in (root / "libs/pyloop/treadle").glob("*.pyi"):
        collect(ast.parse(path.read_text()).body, "", found)
    return found


def collect(body, prefix, found):
    for node in body:
        if isinstance(node, ast.ClassDef):
            collect(node.body, f"{node.name}.", found)
        elif isinstance(node, ast.If):  # by version: the newest stands first
            collect(node.body, prefix, found)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            key = prefix[:-1] if node.name in ("__init__", "__new__") else prefix + node.name
            is_property = any(getattr(mark, "id", "") == "property" for mark in node.decorator_list)
            returns = f" -> {ast.unparse(node.returns)}" if node.returns and key != prefix[:-1] else ""
            arguments = re.sub(r"^(self|cls)(, /)?(, )?", "", ast.unparse(node.args))
            arguments = re.sub(r"(: [^=,]+)=", r"\1 = ", arguments)
            text = returns.replace(" -> ", ": ") if is_property else f"({arguments}){returns}"
            found.setdefault(key, ("async " * isinstance(node, ast.AsyncFunctionDef), text))


def modules():
    return {name: importlib.import_module(module) for name, (module, _) in MODULES.items()}
