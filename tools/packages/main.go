// Command packages builds the artefacts of a release: programs, archives, packages of
// Debian and RPM, their bills of materials, what Homebrew and npm need, and the manifest
// that lists all of them with their digests.
//
// The output depends only on the source and the version: times are those of the commit.
package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

const (
	module = "github.com/execwire/execwire"
	// baseURL is where the artefacts of a version are downloaded from.
	baseURL = "https://github.com/execwire/execwire/releases/download/v"
)

// maxBytes bounds the size of each program. The hub has an embedded NATS server.
var maxBytes = map[string]int64{"execwire": 22e6, "execwire-hub": 24e6}

// target is a system that is built for, in the words of Go.
type target struct{ os, arch string }

var targets = []target{
	{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}, {"windows", "amd64"}, {"windows", "arm64"},
}

// programs are those that a target has.
func (t target) programs() []string {
	if t.os == "linux" {
		return []string{"execwire", "execwire-hub"}
	}
	return []string{"execwire"}
}

// file returns the file name of a program.
func (t target) file(program string) string {
	if t.os == "windows" {
		return program + ".exe"
	}
	return program
}

// artefact is one file of a release.
type artefact struct {
	Name   string `json:"name"`
	Kind   string `json:"kind"` // archive, deb, rpm, npm, sbom, formula or script
	OS     string `json:"os,omitempty"`
	Arch   string `json:"arch,omitempty"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// manifest is the file manifest.json of a release.
type manifest struct {
	Version   string     `json:"version"`
	Commit    string     `json:"commit"`
	Date      string     `json:"date"`
	URL       string     `json:"url"` // the directory of the artefacts
	Artefacts []artefact `json:"artefacts"`
}

// release is one run.
type release struct {
	source, work, out string // directories: the repository, files of targets, and the artefacts
	time              time.Time
	manifest          manifest
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "packages:", err)
		os.Exit(1)
	}
}

var semantic = regexp.MustCompile(`^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)

func run() error {
	source := flag.String("source", ".", "the `directory` of the repository")
	out := flag.String("out", "dist", "the `directory` for the artefacts, which is made anew")
	version := flag.String("version", "", "the semantic `version`, without v")
	commit := flag.String("commit", "", "the `commit` of the source")
	only := flag.String("only", "", "build for these targets, as `OS/ARCH,...`; default all")
	flag.Parse()
	if !semantic.MatchString(*version) {
		return fmt.Errorf("-version %q is not a semantic version: write for example 1.2.3", *version)
	}
	var epoch int64
	if _, err := fmt.Sscan(os.Getenv("SOURCE_DATE_EPOCH"), &epoch); err != nil {
		return errors.New("SOURCE_DATE_EPOCH has to be the time of the commit, in seconds since 1970")
	}
	r := &release{time: time.Unix(epoch, 0).UTC()}
	var err error
	if r.source, err = filepath.Abs(*source); err != nil {
		return err
	}
	if r.out, err = filepath.Abs(*out); err != nil {
		return err
	}
	if r.work, err = os.MkdirTemp("", "execwire-packages-"); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(r.work) }()
	r.manifest = manifest{Version: *version, Commit: *commit, Date: r.time.Format(time.RFC3339), URL: baseURL + *version}
	selected := targets
	if *only != "" {
		selected = slices.DeleteFunc(slices.Clone(targets), func(t target) bool {
			return !slices.Contains(strings.Split(*only, ","), t.os+"/"+t.arch)
		})
	}
	if len(selected) == 0 {
		return fmt.Errorf("-only %q names no target", *only)
	}
	if err := errors.Join(os.RemoveAll(r.out), os.MkdirAll(r.out, 0o755)); err != nil {
		return err
	}
	documents, err := r.documents()
	if err != nil {
		return err
	}
	for _, t := range selected {
		if err := r.target(t, documents); err != nil {
			return fmt.Errorf("%s/%s: %w", t.os, t.arch, err)
		}
	}
	if err := r.npm(selected); err != nil {
		return err
	}
	for _, generated := range []func() error{r.formula, r.installScript, r.list} {
		if err := generated(); err != nil {
			return err
		}
	}
	return r.print()
}

// command runs a program and returns its output.
func (r *release) command(dir string, variables []string, name string, arguments ...string) ([]byte, error) {
	command := exec.Command(name, arguments...)
	command.Dir = dir
	command.Env = append(os.Environ(), variables...)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return nil, fmt.Errorf("%s %s: %w\n%s%s", name, strings.Join(arguments, " "), err, &stdout, &stderr)
	}
	return stdout.Bytes(), nil
}

// build builds programs for a target into a directory.
func (r *release) build(t target, dir string) error {
	arguments := []string{dir, r.manifest.Version, r.manifest.Commit, r.manifest.Date}
	if _, err := r.command(r.source, []string{"GOOS=" + t.os, "GOARCH=" + t.arch}, "scripts/build-programs", append(arguments, t.programs()...)...); err != nil {
		return err
	}
	for _, program := range t.programs() {
		info, err := os.Stat(filepath.Join(dir, t.file(program)))
		if err != nil {
			return err
		}
		if info.Size() > maxBytes[program] {
			return fmt.Errorf("%s has %d bytes, more than %d", program, info.Size(), maxBytes[program])
		}
	}
	return nil
}

// documents makes what is the same for all targets, by the programs of this machine:
// manual pages, completions, and configuration files.
func (r *release) documents() (dir string, err error) {
	dir = filepath.Join(r.work, "documents")
	for _, sub := range []string{"man", "man-hub", "completions"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return "", err
		}
	}
	host, err := r.command(r.source, nil, "go", "env", "GOHOSTARCH")
	if err != nil {
		return "", err
	}
	if err := r.build(target{"linux", strings.TrimSpace(string(host))}, r.work); err != nil {
		return "", err
	}
	server, hub := filepath.Join(r.work, "execwire"), filepath.Join(r.work, "execwire-hub")
	for _, output := range []struct {
		file, program string
		arguments     []string
	}{
		{"execwire.toml", server, []string{"config", "example"}},
		{"hub.toml", hub, []string{"config", "example"}},
		{"completions/execwire.bash", server, []string{"completion", "bash"}},
		{"completions/execwire.zsh", server, []string{"completion", "zsh"}},
		{"completions/execwire.fish", server, []string{"completion", "fish"}},
		{"completions/execwire.ps1", server, []string{"completion", "powershell"}},
		{"", server, []string{"man", filepath.Join(dir, "man")}},
		{"", hub, []string{"man", filepath.Join(dir, "man-hub")}},
	} {
		text, err := r.command(r.work, nil, output.program, output.arguments...)
		if err != nil {
			return "", err
		}
		switch output.file {
		case "":
			continue
		case "execwire.toml": // clients of the socket unit, and those of this machine
			text = slices.Concat([]byte("# Listeners of the package: that of execwire.socket, and TCP for the user execwire and root.\n"+
				"listen = [\"unix:///run/execwire/execwire.sock\", \"tcp://127.0.0.1:7420\"]\n\n"), text)
		}
		if err := os.WriteFile(filepath.Join(dir, output.file), text, 0o644); err != nil {
			return "", err
		}
	}
	for _, name := range []string{"LICENSE", "README.md", "CHANGELOG.md"} {
		if err := copyFile(filepath.Join(dir, name), filepath.Join(r.source, name)); err != nil {
			return "", err
		}
	}
	pages, err := filepath.Glob(filepath.Join(dir, "man*", "*.1"))
	if err != nil {
		return "", err
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			return "", err
		}
		if err := errors.Join(os.WriteFile(page+".gz", compress(text), 0o644), os.Remove(page)); err != nil {
			return "", err
		}
	}
	return dir, nil
}

func compress(text []byte) []byte {
	var b bytes.Buffer
	w, _ := gzip.NewWriterLevel(&b, gzip.BestCompression)
	_, _ = w.Write(text)
	_ = w.Close()
	return b.Bytes()
}

// target makes the artefacts of one target.
func (r *release) target(t target, documents string) error {
	root := filepath.Join(r.work, t.os+"-"+t.arch)
	if err := os.CopyFS(root, os.DirFS(documents)); err != nil {
		return err
	}
	if err := r.build(t, root); err != nil {
		return err
	}
	name := fmt.Sprintf("execwire_%s_%s_%s", r.manifest.Version, t.os, t.arch)
	for _, program := range t.programs() {
		// The modules that the program itself says it has: what is linked, not what go.mod lists.
		bom := fmt.Sprintf("%s_%s_%s_%s.cdx.json", program, r.manifest.Version, t.os, t.arch)
		if _, err := r.command(filepath.Join(r.source, "tools/packages"), nil, "go", "tool", "cyclonedx-gomod", "bin", "-json", "-std",
			"-noserial", "-notimestamp", "-version", "v"+r.manifest.Version, "-output", filepath.Join(r.out, bom), filepath.Join(root, t.file(program))); err != nil {
			return err
		}
		if err := r.add(artefact{Name: bom, Kind: "sbom", OS: t.os, Arch: t.arch}); err != nil {
			return err
		}
	}
	files := []string{"LICENSE", "README.md", "CHANGELOG.md"}
	for _, pattern := range []string{"man/*", "man-hub/*", "completions/*"} {
		if pattern == "man-hub/*" && t.os != "linux" {
			continue
		}
		found, err := fs.Glob(os.DirFS(root), pattern)
		if err != nil {
			return err
		}
		files = append(files, found...)
	}
	var entries []entry
	for _, file := range files {
		entries = append(entries, entry{name + "/" + strings.Replace(file, "man-hub/", "man/", 1), filepath.Join(root, file), 0o644})
	}
	if t.os == "linux" { // with a server and a hub
		monitoring, err := filepath.Glob(filepath.Join(r.source, "deploy/monitoring/*"))
		if err != nil {
			return err
		}
		for _, path := range monitoring {
			entries = append(entries, entry{name + "/monitoring/" + filepath.Base(path), path, 0o644})
		}
	}
	for _, program := range t.programs() {
		entries = append(entries, entry{name + "/" + t.file(program), filepath.Join(root, t.file(program)), 0o755})
	}
	write, suffix := r.writeTar, ".tar.gz"
	if t.os == "windows" {
		write, suffix = r.writeZip, ".zip"
	}
	if err := write(name+suffix, entries); err != nil {
		return err
	}
	if err := r.add(artefact{Name: name + suffix, Kind: "archive", OS: t.os, Arch: t.arch}); err != nil {
		return err
	}
	if t.os == "linux" {
		if err := r.systemPackages(t, root); err != nil {
			return err
		}
	}
	return r.npmPlatform(t, root)
}

// systemPackages makes the packages of Debian and RPM.
func (r *release) systemPackages(t target, root string) error {
	values := strings.NewReplacer("${ROOT}", root, "${DEPLOY}", filepath.Join(r.source, "deploy"), "${VERSION}", r.manifest.Version, "${ARCH}", t.arch)
	for _, program := range t.programs() {
		text, err := os.ReadFile(filepath.Join(r.source, "deploy/nfpm", program+".yaml"))
		if err != nil {
			return err
		}
		description := filepath.Join(root, program+".yaml")
		if err := os.WriteFile(description, []byte(values.Replace(string(text))), 0o644); err != nil {
			return err
		}
		for _, kind := range []string{"deb", "rpm"} {
			name := fmt.Sprintf("%s_%s_%s.%s", program, r.manifest.Version, t.arch, kind)
			if _, err := r.command(filepath.Join(r.source, "tools/packages"), nil, "go", "tool", "nfpm", "package",
				"-f", description, "-p", kind, "-t", filepath.Join(r.out, name)); err != nil {
				return err
			}
			if err := r.add(artefact{Name: name, Kind: kind, OS: t.os, Arch: t.arch}); err != nil {
				return err
			}
		}
	}
	return nil
}

// npmNames are the names of systems and architectures in packages of npm.
var npmNames = map[string]string{"windows": "win32", "amd64": "x64"}

func npmName(word string) string { return cmp.Or(npmNames[word], word) }

// npmPackage is the package of npm with the program of a target.
func npmPackage(t target) string { return "execwire-" + npmName(t.os) + "-" + npmName(t.arch) }

// npmPlatform makes the package of npm with the program of a target. npm installs the one
// of its machine with the SDK, and records its digest in lock files.
func (r *release) npmPlatform(t target, root string) error {
	name := npmPackage(t)
	description, err := json.MarshalIndent(map[string]any{
		"name": name, "version": r.manifest.Version, "license": "Apache-2.0", "description": "The program execwire for " + t.os + " on " + t.arch,
		"repository": map[string]string{"type": "git", "url": "git+https://" + module + ".git"},
		"os":         []string{npmName(t.os)}, "cpu": []string{npmName(t.arch)}, "files": []string{"bin"}, "preferUnplugged": true,
	}, "", "  ")
	if err != nil {
		return err
	}
	path := filepath.Join(root, "package.json")
	if err := os.WriteFile(path, append(description, '\n'), 0o644); err != nil {
		return err
	}
	file := fmt.Sprintf("%s-%s.tgz", name, r.manifest.Version)
	if err := r.writeTar(file, []entry{
		{"package/package.json", path, 0o644}, {"package/LICENSE", filepath.Join(root, "LICENSE"), 0o644},
		{"package/bin/" + t.file("execwire"), filepath.Join(root, t.file("execwire")), 0o755},
	}); err != nil {
		return err
	}
	return r.add(artefact{Name: file, Kind: "npm", OS: t.os, Arch: t.arch})
}

// npm makes the package execwire of npm: the SDK for TypeScript, with the command.
func (r *release) npm(selected []target) error {
	packed, dir := filepath.Join(r.work, "sdk"), filepath.Join(r.work, "sdk", "package")
	if _, err := r.command(r.source, nil, "scripts/package-sdks", packed, "typescript"); err != nil {
		return err
	}
	found, err := filepath.Glob(filepath.Join(packed, "execwire-*.tgz"))
	if err != nil || len(found) != 1 {
		return fmt.Errorf("the package of the SDK is one of %v: %w", found, err)
	}
	if _, err := r.command(packed, nil, "tar", "-xzf", found[0]); err != nil {
		return err
	}
	// By npm, because the order of the members matters.
	changes := []string{"pkg", "set", "version=" + r.manifest.Version, "bin.execwire=bin/execwire.cjs", "files[]=bin"}
	for _, t := range selected {
		changes = append(changes, "optionalDependencies."+npmPackage(t)+"="+r.manifest.Version)
	}
	// The scripts need the repository; npm warns of prepare, which it runs in a checkout.
	for _, arguments := range [][]string{{"pkg", "delete", "scripts", "devDependencies"}, changes} {
		if _, err := r.command(dir, nil, "npm", arguments...); err != nil {
			return err
		}
	}
	entries := []entry{{"package/bin/execwire.cjs", filepath.Join(r.source, "deploy/npm/execwire.cjs"), 0o755}}
	if err := filepath.WalkDir(dir, func(path string, file fs.DirEntry, err error) error {
		if err == nil && !file.IsDir() {
			name, _ := filepath.Rel(packed, path) // it is below
			entries = append(entries, entry{filepath.ToSlash(name), path, 0o644})
		}
		return err
	}); err != nil {
		return err
	}
	file := fmt.Sprintf("execwire-%s.tgz", r.manifest.Version)
	if err := r.writeTar(file, entries); err != nil {
		return err
	}
	return r.add(artefact{Name: file, Kind: "npm"})
}

// archive returns the archive of a target.
func (r *release) archive(t target) (artefact, bool) {
	i := slices.IndexFunc(r.manifest.Artefacts, func(a artefact) bool { return a.Kind == "archive" && a.OS == t.os && a.Arch == t.arch })
	if i < 0 {
		return artefact{}, false
	}
	return r.manifest.Artefacts[i], true
}

// fill writes a template of deploy as an artefact. @NAME@ is replaced.
func (r *release) fill(template, kind string, values map[string]string) error {
	text, err := os.ReadFile(filepath.Join(r.source, "deploy", template))
	if err != nil {
		return err
	}
	for name, value := range values {
		text = bytes.ReplaceAll(text, []byte("@"+name+"@"), []byte(value))
	}
	name := filepath.Base(template)
	if err := os.WriteFile(filepath.Join(r.out, name), text, 0o755); err != nil {
		return err
	}
	return r.add(artefact{Name: name, Kind: kind})
}

// formula writes the formula for Homebrew, which knows macOS and Linux.
func (r *release) formula() error {
	values := map[string]string{"VERSION": r.manifest.Version, "URL": r.manifest.URL}
	for _, t := range targets {
		if a, ok := r.archive(t); ok && t.os != "windows" {
			values["SHA256_"+strings.ToUpper(t.os+"_"+t.arch)] = a.SHA256
		}
	}
	return r.fill("homebrew/execwire.rb", "formula", values)
}

// installScript writes install.sh, which has the digests of the archives.
func (r *release) installScript() error {
	var digests strings.Builder
	for _, t := range targets {
		if a, ok := r.archive(t); ok && t.os != "windows" {
			fmt.Fprintf(&digests, "%s_%s) echo %s ;;\n", t.os, t.arch, a.SHA256)
		}
	}
	return r.fill("install.sh", "script", map[string]string{
		"VERSION": r.manifest.Version, "URL": r.manifest.URL, "DIGESTS": strings.TrimSpace(digests.String())})
}

// list writes the manifest and SHA256SUMS.
func (r *release) list() error {
	slices.SortFunc(r.manifest.Artefacts, func(a, b artefact) int { return strings.Compare(a.Name, b.Name) })
	text, err := json.MarshalIndent(r.manifest, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(r.out, "manifest.json"), append(text, '\n'), 0o644); err != nil {
		return err
	}
	var sums strings.Builder
	for _, a := range r.manifest.Artefacts {
		fmt.Fprintf(&sums, "%s  %s\n", a.SHA256, a.Name)
	}
	digest := sha256.Sum256(append(text, '\n'))
	fmt.Fprintf(&sums, "%x  manifest.json\n", digest)
	return os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), []byte(sums.String()), 0o644)
}

// print prints the table of artefacts.
func (r *release) print() error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	for _, a := range r.manifest.Artefacts {
		fmt.Fprintf(w, "%s\t%.1f MB\t%s\n", a.Name, float64(a.Size)/1e6, a.SHA256)
	}
	return w.Flush()
}

// add adds a file of the output directory to the manifest.
func (r *release) add(a artefact) error {
	file, err := os.Open(filepath.Join(r.out, a.Name))
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	digest := sha256.New()
	if a.Size, err = io.Copy(digest, file); err != nil {
		return err
	}
	a.SHA256 = hex.EncodeToString(digest.Sum(nil))
	r.manifest.Artefacts = append(r.manifest.Artefacts, a)
	return nil
}

// entry is a file of an archive.
type entry struct {
	name, path string
	mode       fs.FileMode
}

// writeTar writes a compressed tar archive.
func (r *release) writeTar(name string, entries []entry) error {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		content, err := os.ReadFile(e.path)
		if err != nil {
			return err
		}
		header := &tar.Header{Name: e.name, Mode: int64(e.mode), Size: int64(len(content)), ModTime: r.time, Format: tar.FormatPAX}
		if err := w.WriteHeader(header); err != nil {
			return err
		}
		if _, err := w.Write(content); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.out, name), compress(b.Bytes()), 0o644)
}

// writeZip writes a zip archive.
func (r *release) writeZip(name string, entries []entry) error {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, e := range entries {
		content, err := os.ReadFile(e.path)
		if err != nil {
			return err
		}
		header := &zip.FileHeader{Name: e.name, Method: zip.Deflate, Modified: r.time}
		header.SetMode(e.mode)
		file, err := w.CreateHeader(header)
		if err != nil {
			return err
		}
		if _, err := file.Write(content); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.out, name), b.Bytes(), 0o644)
}

func copyFile(to, from string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o644)
}
