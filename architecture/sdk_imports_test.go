package architecture

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// imports maps each module of an SDK to the modules of the SDK that it imports.
type imports map[string][]string

// TestSDKImports_HaveNoCycle counts imports of types too: two modules that need each other's
// types cannot be understood separately.
func TestSDKImports_HaveNoCycle(t *testing.T) {
	for _, sdk := range []struct {
		dir  string
		read func(fs.FS) (imports, error)
	}{
		{"../sdk/typescript/src", readTypeScript},
		{"../sdk/python/execwire", readPython},
	} {
		modules, err := sdk.read(os.DirFS(sdk.dir))
		if err != nil {
			t.Fatal(err)
		}
		edges := 0
		for _, imported := range modules {
			edges += len(imported)
		}
		if len(modules) < 20 || edges < 2*len(modules) {
			t.Errorf("%s: read %d modules with %d imports, want more: are the import statements still recognized?", sdk.dir, len(modules), edges)
		}
		if cycle := modules.cycle(); cycle != nil {
			t.Errorf("%s: import cycle: %s", sdk.dir, strings.Join(cycle, " -> "))
		}
	}
}

func TestSDKImports_CycleIsFound(t *testing.T) {
	for _, c := range []struct {
		name  string
		read  func(fs.FS) (imports, error)
		files map[string]string
		want  string
	}{
		{"typescript acyclic", readTypeScript, map[string]string{
			"a.ts": "import { b } from \"./b.js\";\nimport { c } from \"./c.js\";", "b.ts": "export * from \"./c.js\";", "c.ts": "import * as fs from \"node:fs\";"}, ""},
		{"typescript", readTypeScript, map[string]string{"a.ts": `import { b } from "./b.js";`, "b.ts": `import { a } from "./a.js";`}, "a -> b -> a"},
		{"typescript type only", readTypeScript, map[string]string{"a.ts": `import type { B } from "./b.js";`, "b.ts": "import {\n  type A,\n  x,\n} from \"./a.js\";"}, "a -> b -> a"},
		{"typescript inline", readTypeScript, map[string]string{"a.ts": `type B = import("./b.js").B;`, "b.ts": `export * from "./a.js";`}, "a -> b -> a"},
		{"typescript of three", readTypeScript, map[string]string{
			"a.ts": `import "./b.js";`, "b.ts": `import "./c.js";`, "c.ts": `import "./b.js";`}, "b -> c -> b"},
		{"python acyclic", readPython, map[string]string{
			"__init__.py": "from ._a import A", "_a.py": "from . import errors", "errors.py": "import errno", "aio/__init__.py": "from .._a import A"}, ""},
		{"python", readPython, map[string]string{"__init__.py": "", "a.py": "from . import x, b", "b.py": "from .a import A"}, "a -> b -> a"},
		{"python type only", readPython, map[string]string{"a.py": "if TYPE_CHECKING:\n    from .b import B", "b.py": "from .a import A"}, "a -> b -> a"},
		{"python deferred", readPython, map[string]string{"a.py": "def f():\n    from .b import B", "b.py": "from .a import (\n    A,\n    C,\n)"}, "a -> b -> a"},
		{"python package", readPython, map[string]string{"aio/__init__.py": "from ._a import A", "aio/_a.py": "from ..aio import B"}, "aio -> aio/_a -> aio"},
		{"python absolute", readPython, map[string]string{"a.py": "import execwire.b", "b.py": "from execwire import a"}, "a -> b -> a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			fsys := fstest.MapFS{}
			for name, source := range c.files {
				fsys[name] = &fstest.MapFile{Data: []byte(source)}
			}
			modules, err := c.read(fsys)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(modules.cycle(), " -> "); got != c.want {
				t.Errorf("cycle is %q, want %q (imports: %v)", got, c.want, modules)
			}
		})
	}
}

// typeScriptImport matches static, side-effect and inline imports, and
// re-exports.
var typeScriptImport = regexp.MustCompile(`(?:\bfrom|\bimport)\s*\(?\s*["'](\.{1,2}/[^"']+)\.js["']`)

func readTypeScript(fsys fs.FS) (imports, error) {
	return readModules(fsys, ".ts", func(file, source string, _ imports) []string {
		var found []string
		for _, match := range typeScriptImport.FindAllStringSubmatch(source, -1) {
			found = append(found, path.Join(path.Dir(file), match[1]))
		}
		return found
	})
}

var (
	pythonImport = regexp.MustCompile(`(?m)^[ \t]*import +execwire\.([\w.]+)`)
	// pythonFrom matches "from MODULE import NAMES", with or without
	// parentheses.
	pythonFrom = regexp.MustCompile(`(?m)^[ \t]*from +(\.+|execwire\b\.?)([\w.]*) +import +(\([^)]*\)|[^\n]*)`)
	pythonName = regexp.MustCompile(`\w+(?: +as +\w+)?`)
)

func readPython(fsys fs.FS) (imports, error) {
	return readModules(fsys, ".py", func(file, source string, modules imports) []string {
		var found []string
		for _, match := range pythonImport.FindAllStringSubmatch(source, -1) {
			found = append(found, strings.ReplaceAll(match[1], ".", "/"))
		}
		for _, match := range pythonFrom.FindAllStringSubmatch(source, -1) {
			dir := "."
			if dots := match[1]; strings.HasPrefix(dots, ".") {
				dir = path.Join(path.Dir(file), strings.Repeat("../", len(dots)-1))
			}
			module := path.Join(dir, strings.ReplaceAll(match[2], ".", "/"))
			for _, name := range pythonName.FindAllString(match[3], -1) {
				name, _, _ = strings.Cut(name, " ")
				if submodule := path.Join(module, name); has(modules, submodule) {
					found = append(found, submodule)
				} else {
					found = append(found, module)
				}
			}
		}
		return found
	})
}

func has(modules imports, name string) bool {
	_, ok := modules[name]
	return ok
}

// readModules reads the imports of every hand-written module. A Python package has the name
// of its directory. Generated modules import no modules of the SDK.
func readModules(fsys fs.FS, suffix string, read func(file, source string, modules imports) []string) (imports, error) {
	modules, sources := imports{}, map[string]string{}
	err := fs.WalkDir(fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (name == "gen" || name == "v1") {
			return fs.SkipDir
		}
		if !entry.Type().IsRegular() || !strings.HasSuffix(name, suffix) {
			return nil
		}
		source, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		sources[name] = string(source)
		modules[moduleName(name, suffix)] = nil
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(modules) == 0 {
		return nil, errors.New("no module found")
	}
	for file, source := range sources {
		module := moduleName(file, suffix)
		found := slices.DeleteFunc(read(file, source, modules), func(name string) bool { return !has(modules, name) || name == module })
		slices.Sort(found)
		modules[module] = slices.Compact(found)
	}
	return modules, nil
}

func moduleName(file, suffix string) string {
	return path.Clean(strings.TrimSuffix(strings.TrimSuffix(file, suffix), "__init__"))
}

// cycle returns the first import cycle by name, as "a", "b", "a", or nil.
func (m imports) cycle() []string {
	done := map[string]bool{}
	var visit func(module string, from []string) []string
	visit = func(module string, from []string) []string {
		if i := slices.Index(from, module); i >= 0 {
			return append(slices.Clone(from[i:]), module)
		}
		if done[module] {
			return nil
		}
		done[module] = true
		for _, imported := range m[module] {
			if cycle := visit(imported, append(from, module)); cycle != nil {
				return cycle
			}
		}
		return nil
	}
	for _, module := range slices.Sorted(maps.Keys(m)) {
		if cycle := visit(module, nil); cycle != nil {
			return cycle
		}
	}
	return nil
}
