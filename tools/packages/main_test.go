package main

import (
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// The artefacts of the tests: those of all targets, and those of a later version for this
// machine.
var first, later string

const (
	firstVersion, laterVersion = "1.2.3", "1.3.0-rc.1"
	commit                     = "0123456789abcdef0123456789abcdef01234567"
	epoch                      = "1790000000"
	date                       = "2026-09-21T14:13:20Z"
)

func TestMain(m *testing.M) {
	code, err := testAll(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

func testAll(m *testing.M) (int, error) {
	dir, err := os.MkdirTemp("", "execwire-packages-test-")
	if err != nil {
		return 1, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	first, later = filepath.Join(dir, "first"), filepath.Join(dir, "later")
	if err := makeRelease("../..", first, firstVersion, os.Getenv("PACKAGES_ONLY")); err != nil {
		return 1, err
	}
	if err := makeRelease("../..", later, laterVersion, "linux/"+runtime.GOARCH); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

// makeRelease runs this program, with variables.
func makeRelease(source, out, version, only string, variables ...string) error {
	command := exec.Command("go", "run", ".", "-source", source, "-out", out, "-version", version, "-commit", commit, "-only", only)
	command.Env = append(append(os.Environ(), "SOURCE_DATE_EPOCH="+epoch), variables...)
	if text, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("failed to make %s: %w\n%s", out, err, text)
	}
	return nil
}

// try runs a command and returns what it prints.
func try(dir string, variables []string, name string, arguments ...string) (string, error) {
	command := exec.Command(name, arguments...)
	command.Dir, command.Env = dir, append(os.Environ(), variables...)
	text, err := command.CombinedOutput()
	return string(text), err
}

// must is try, and fails the test with the command.
func must(t *testing.T, dir string, variables []string, name string, arguments ...string) string {
	t.Helper()
	text, err := try(dir, variables, name, arguments...)
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, arguments, err, text)
	}
	return text
}

func readManifest(t *testing.T) (m manifest) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(first, "manifest.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &m); err != nil {
		t.Fatal(err)
	}
	return m
}

// checkProgram checks the version of an installed program, and uses it.
func checkProgram(t *testing.T, program, version string) {
	t.Helper()
	var got struct{ Version, Commit, Date string }
	if err := json.Unmarshal([]byte(must(t, "/", nil, program, "version", "--json")), &got); err != nil {
		t.Fatal(err)
	}
	if got.Version != version || got.Commit != commit || got.Date != date {
		t.Errorf("it is %+v", got)
	}
	if text := must(t, "/", nil, program, "run", "--", "sh", "-c", "echo $((6 * 7))"); text != "42\n" {
		t.Errorf("a process printed %q", text)
	}
}

// TestRelease_TwoDirectories_AreEqual builds again in a copy of the source, by a user with other
// settings.
func TestRelease_TwoDirectories_AreEqual(t *testing.T) {
	dir := t.TempDir()
	source, out := filepath.Join(dir, "elsewhere", "source"), filepath.Join(dir, "again")
	if err := os.MkdirAll(source, 0o755); err != nil {
		t.Fatal(err)
	}
	must(t, "../..", nil, "sh", "-c", `git ls-files -z --cached --others --exclude-standard | tar -cf - --null -T - | tar -xf - -C "$0"`, source)
	if err := makeRelease(source, out, firstVersion, os.Getenv("PACKAGES_ONLY"),
		"GOARM64=v8.1", "GOFLAGS=-mod=mod", "TZ=Asia/Kolkata"); err != nil {
		t.Fatal(err)
	}
	one, err := os.ReadFile(filepath.Join(first, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	two, err := os.ReadFile(filepath.Join(out, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	if string(one) != string(two) {
		t.Errorf("the digests differ:\n%s\n%s", one, two)
	}
	must(t, first, nil, "sha256sum", "--check", "--strict", "SHA256SUMS")
}

func fileSize(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// TestArchives_HaveProgramsOfTheirSystem unpacks every archive, checks the sizes of its
// programs, and uses that of this machine.
func TestArchives_HaveProgramsOfTheirSystem(t *testing.T) {
	for _, a := range readManifest(t).Artefacts {
		if a.Kind != "archive" {
			continue
		}
		dir := t.TempDir()
		if strings.HasSuffix(a.Name, ".zip") {
			must(t, dir, nil, "unzip", "-q", filepath.Join(first, a.Name))
		} else {
			must(t, dir, nil, "tar", "-xzf", filepath.Join(first, a.Name))
		}
		system := target{a.OS, a.Arch}
		root := filepath.Join(dir, fmt.Sprintf("execwire_%s_%s_%s", firstVersion, a.OS, a.Arch))
		for _, program := range system.programs() {
			info, err := buildinfo.ReadFile(filepath.Join(root, system.file(program)))
			if err != nil {
				t.Fatal(err)
			}
			settings := map[string]string{}
			for _, s := range info.Settings {
				settings[s.Key] = s.Value
			}
			if settings["GOOS"] != a.OS || settings["GOARCH"] != a.Arch || settings["CGO_ENABLED"] != "0" || settings["-tags"] != "grpcnotrace,nethttpomithttp2" {
				t.Errorf("%s of %s was built with %v", program, a.Name, settings)
			}
			if size := fileSize(t, filepath.Join(root, system.file(program))); size > maxBytes[program] {
				t.Errorf("%s of %s has %d bytes, more than its limit of %d", program, a.Name, size, maxBytes[program])
			}
			bom, err := os.ReadFile(filepath.Join(first, fmt.Sprintf("%s_%s_%s_%s.cdx.json", program, firstVersion, a.OS, a.Arch)))
			if err != nil {
				t.Fatal(err)
			}
			for _, module := range info.Deps {
				if !strings.Contains(string(bom), fmt.Sprintf("%q: %q", "name", module.Path)) {
					t.Errorf("the bill of materials of %s in %s lacks %s", program, a.Name, module.Path)
				}
			}
		}
		files := []string{"LICENSE", "CHANGELOG.md", "completions/execwire.bash", "man/execwire-run.1.gz"}
		if a.OS == "linux" {
			files = append(files, "monitoring/alerts.yaml", "monitoring/dashboard-server.json", "monitoring/dashboard-hub.json")
		}
		for _, name := range files {
			if _, err := os.Stat(filepath.Join(root, name)); err != nil {
				t.Errorf("%s: %v", a.Name, err)
			}
		}
		if a.OS == "linux" && a.Arch == runtime.GOARCH {
			checkProgram(t, filepath.Join(root, "execwire"), firstVersion)
			if text := must(t, "/", nil, filepath.Join(root, "execwire-hub"), "--version"); !strings.Contains(text, firstVersion) {
				t.Errorf("the hub says %q", text)
			}
			if text := must(t, "/", nil, "file", filepath.Join(root, "execwire")); !strings.Contains(text, "statically linked") || !strings.Contains(text, ", stripped") {
				t.Errorf("file says %q", text)
			}
		}
	}
}

// TestInstallScript installs from a server, and refuses an archive with another digest.
func TestInstallScript(t *testing.T) {
	server := httptest.NewServer(http.FileServer(http.Dir(first)))
	defer server.Close()
	into := filepath.Join(t.TempDir(), "bin")
	script := filepath.Join(first, "install.sh")
	variables := []string{"EXECWIRE_DOWNLOAD_URL=" + server.URL, "EXECWIRE_INSTALL_DIR=" + into}
	for range 2 { // over an existing program, too
		must(t, "/", variables, "sh", script)
	}
	checkProgram(t, filepath.Join(into, "execwire"), firstVersion)

	altered := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("altered")) }))
	defer altered.Close()
	none := filepath.Join(t.TempDir(), "bin")
	for url, want := range map[string]string{altered.URL: "nothing was installed", server.URL + "/none": "failed to download"} {
		text, err := try("/", []string{"EXECWIRE_DOWNLOAD_URL=" + url, "EXECWIRE_INSTALL_DIR=" + none}, "sh", script)
		if _, missing := os.Stat(none); err == nil || !strings.Contains(text, want) || missing == nil {
			t.Errorf("%v: %s", err, text)
		}
	}
}

// TestNpm installs the SDK with its command in an empty directory, from files alone, and runs
// it by npx. Without the package for this machine the command says so.
func TestNpm(t *testing.T) {
	dir := t.TempDir()
	overrides := map[string]string{}
	for _, a := range readManifest(t).Artefacts {
		if name, ok := strings.CutSuffix(a.Name, "-"+firstVersion+".tgz"); ok {
			overrides[name] = "file:" + filepath.Join(first, a.Name)
		}
	}
	// The dependencies of the SDK are those that building it has installed.
	var sdk struct{ Dependencies map[string]string }
	text, err := os.ReadFile("../../sdk/typescript/package.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &sdk); err != nil {
		t.Fatal(err)
	}
	for name := range sdk.Dependencies {
		installed, err := filepath.Abs("../../sdk/typescript/node_modules/" + name)
		if err != nil {
			t.Fatal(err)
		}
		file := must(t, dir, nil, "npm", "pack", "--ignore-scripts", "--silent", installed)
		overrides[name] = "file:" + filepath.Join(dir, strings.TrimSpace(file))
	}
	own := overrides["execwire"]
	delete(overrides, "execwire")
	if text, err = json.Marshal(map[string]any{
		"private": true, "dependencies": map[string]string{"execwire": own}, "overrides": overrides}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "package.json"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	must(t, dir, nil, "npm", "install", "--offline", "--ignore-scripts", "--no-audit", "--no-fund")
	var installed map[string]any
	if text, err = os.ReadFile(filepath.Join(dir, "node_modules/execwire/package.json")); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &installed); err != nil {
		t.Fatal(err)
	}
	if installed["scripts"] != nil || installed["devDependencies"] != nil {
		t.Errorf("the package has what only a checkout needs: %s", text)
	}
	program := filepath.Join(dir, "node_modules/.bin/execwire")
	checkProgram(t, program, firstVersion)
	if text := must(t, dir, nil, "npx", "--offline", "execwire", "run", "--", "echo", "npx"); text != "npx\n" {
		t.Errorf("npx prints %q", text)
	}
	for script, want := range map[string]int{"exit 3": 3, "kill -TERM $$": 143} {
		_, err := try(dir, nil, program, "run", "--", "sh", "-c", script)
		if exit, ok := err.(*exec.ExitError); !ok || exit.ExitCode() != want {
			t.Errorf("%s: %v, want exit code %d", script, err, want)
		}
	}
	use := `import { connect } from "execwire"; console.log(typeof connect, typeof require("execwire").connect)`
	if text := must(t, dir, nil, "node", "--input-type=module", "--eval", `import { createRequire } from "node:module"; const require = createRequire(process.cwd() + "/"); `+use); text != "function function\n" {
		t.Errorf("the SDK has %q", text)
	}
	platform := npmPackage(target{"linux", runtime.GOARCH})
	if err := os.RemoveAll(filepath.Join(dir, "node_modules", platform)); err != nil {
		t.Fatal(err)
	}
	told, err := try(dir, nil, program, "version")
	if exit, ok := err.(*exec.ExitError); !ok || exit.ExitCode() != 125 || !strings.Contains(told, platform+" is not installed") {
		t.Errorf("without the program: %v: %s", err, told)
	}
}

// TestFormula checks the digests of the formula.
func TestFormula(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(first, "execwire.rb"))
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range readManifest(t).Artefacts {
		if a.Kind == "archive" && a.OS != "windows" && !strings.Contains(string(text), fmt.Sprintf("/%s\"\n      sha256 %q", a.Name, a.SHA256)) {
			t.Errorf("the formula lacks %s with its digest", a.Name)
		}
	}
}

// inRoot runs a script of this directory as root of a system of its own: this machine's, of
// which all changes are lost. It has the artefacts in $FIRST and $LATER.
func inRoot(t *testing.T, script string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Fatal("this test installs packages in a root of its own, and has to run as root")
	}
	text := must(t, ".", artefacts(), "unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "sh", "testdata/in-root", script)
	t.Log(text)
	if !strings.HasSuffix(text, "\nall is well\n") {
		t.Error("the script did not come to its end")
	}
}

// artefacts tells scripts where the artefacts are.
func artefacts() []string {
	return []string{"FIRST=" + first, "LATER=" + later, "FIRST_VERSION=" + firstVersion, "LATER_VERSION=" + laterVersion, "GOARCH=" + runtime.GOARCH}
}

func TestDeb_InstallUpgradeRemove(t *testing.T) { inRoot(t, "deb") }
func TestRPM_InstallUpgradeRemove(t *testing.T) { inRoot(t, "rpm") }

// TestSystemd boots systemd with the packages, and uses the units.
func TestSystemd(t *testing.T) {
	text := must(t, ".", artefacts(), "sh", "testdata/boot")
	t.Log(text)
	if !strings.HasSuffix(text, "\nall is well\n") {
		t.Error("the script did not come to its end")
	}
}
