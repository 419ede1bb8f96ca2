package main

import (
	"bufio"
	"bytes"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"archive/tar"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

const repository = "../../.."

// write writes the image to a layout and returns its index.
func write(t *testing.T) v1.ImageIndex {
	t.Helper()
	out := filepath.Join(t.TempDir(), "layout")
	if err := (options{source: repository, out: out}).run(); err != nil {
		t.Fatal(err)
	}
	root, err := layout.ImageIndexFromPath(out)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := root.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 {
		t.Fatalf("the layout has %+v, %v", manifest, err)
	}
	index, err := root.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	return index
}

// The image is valid, reproducible, what Containerfile describes, and works.
func TestImage(t *testing.T) {
	index := write(t)
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	first, err := index.Digest()
	second, err2 := write(t).Digest()
	if err := errors.Join(err, err2); err != nil || first != second {
		t.Errorf("two builds have the digests %v and %v, %v", first, second, err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var architectures []string
	for _, m := range manifest.Manifests {
		architectures = append(architectures, m.Platform.Architecture)
		image, err := index.Image(m.Digest)
		if err != nil {
			t.Fatal(err)
		}
		config, err := image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		got := config.Config
		got.Labels = nil // of the commit
		if want := containerfile(t); !reflect.DeepEqual(got, want) || config.Architecture != m.Platform.Architecture {
			t.Errorf("the configuration is %+v of %s, want %+v", got, config.Architecture, want)
		}
		size, err := compressedSize(image)
		t.Logf("%s: %v, %d bytes compressed, %v", m.Platform.Architecture, m.Digest, size, err)
		if m.Platform.Architecture == runtime.GOARCH {
			t.Run("runs", func(t *testing.T) { testRun(t, unpack(t, image), config.Config) })
		}
	}
	if !slices.Equal(architectures, []string{"amd64", "arm64"}) {
		t.Errorf("the platforms are %q", architectures)
	}
}

func compressedSize(image v1.Image) (size int64, err error) {
	layers, err := image.Layers()
	for _, layer := range layers {
		bytes, sizeErr := layer.Size()
		size, err = size+bytes, errors.Join(err, sizeErr)
	}
	return size, err
}

// containerfile returns the configuration that the last stage of Containerfile makes.
func containerfile(t *testing.T) (config v1.Config) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository, "deploy/Containerfile"))
	if err != nil {
		t.Fatal(err)
	}
	build, stage, _ := strings.Cut(string(text), "\nFROM scratch\n")
	if !strings.Contains(build, "\nARG TARGETOS TARGETARCH\n") { // with a default BuildKit would build for that, whatever --platform
		t.Error("Containerfile does not take the platform of the builder")
	}
	for line := range strings.Lines(stage) {
		instruction, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch instruction {
		case "COPY":
		case "USER":
			config.User = value
		case "ENV":
			config.Env = strings.Fields(value)
		case "WORKDIR":
			config.WorkingDir = value
		case "EXPOSE":
			config.ExposedPorts = map[string]struct{}{}
			for _, port := range strings.Fields(value) {
				config.ExposedPorts[port] = struct{}{}
			}
		case "STOPSIGNAL":
			config.StopSignal = value
		case "ENTRYPOINT":
			err = json.Unmarshal([]byte(value), &config.Entrypoint)
		case "CMD":
			err = json.Unmarshal([]byte(value), &config.Cmd)
		default:
			t.Errorf("Containerfile has %q, which the test does not know", line)
		}
		if err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
	return config
}

// The files that Containerfile takes from this program are those of the image.
func TestRoot_HasTheFilesOfTheImage(t *testing.T) {
	root := t.TempDir()
	if err := (options{root: root}).run(); err != nil {
		t.Fatal(err)
	}
	for _, e := range systemFiles() {
		info, err := os.Stat(filepath.Join(root, e.name))
		if err != nil || info.Mode().Perm() != os.FileMode(e.mode&0o777) || (info.Mode()&os.ModeSticky != 0) != (e.mode&0o1000 != 0) {
			t.Errorf("%s: %v, %v", e.name, info, err)
		}
	}
	authorities, err := os.ReadFile(filepath.Join(root, "etc/ssl/certs/ca-certificates.crt"))
	if pool := x509.NewCertPool(); err != nil || !pool.AppendCertsFromPEM(authorities) || bytes.Count(authorities, []byte("BEGIN CERTIFICATE")) < 100 {
		t.Errorf("the certificate authorities are %d bytes, %v", len(authorities), err)
	}
}

// publicDir returns a directory that every user can enter.
func publicDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "i")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// unpack writes the files of an image to a directory.
func unpack(t *testing.T, image v1.Image) string {
	t.Helper()
	root := publicDir(t)
	flat := mutate.Extract(image)
	defer func() { _ = flat.Close() }()
	for files := tar.NewReader(flat); ; {
		header, err := files.Next()
		if err == io.EOF { // what a runtime makes to mount file systems there
			if err := errors.Join(os.Mkdir(filepath.Join(root, "proc"), 0o755), os.Mkdir(filepath.Join(root, "dev"), 0o755)); err != nil {
				t.Fatal(err)
			}
			return root
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(files)
		name := header.Name
		if header.Typeflag == tar.TypeDir {
			name = strings.TrimSuffix(name, "/") + "/"
		}
		if err := errors.Join(err, writeFiles(root, []entry{{name: name, mode: header.Mode, content: content}})); err != nil {
			t.Fatal(err)
		}
	}
}

// container returns a command in a container without privileges, as process 1 of a user
// without a name, with a read-only root and a directory as its /tmp.
func container(t *testing.T, root, tmp string, config v1.Config, args ...string) *exec.Cmd {
	t.Helper()
	const uid = 1000660000
	c := exec.Command("bwrap", "--unshare-all", "--unshare-user", "--disable-userns", "--uid", strconv.Itoa(uid), "--gid", "0",
		"--as-pid-1", "--die-with-parent", "--new-session", "--ro-bind", root, "/", "--proc", "/proc", "--dev", "/dev",
		"--bind", tmp, "/tmp", "--chdir", config.WorkingDir, "--")
	c.Args = append(c.Args, args...)
	c.Env = config.Env
	c.Stderr = t.Output()
	if os.Getuid() == 0 {
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		if err := os.Chown(tmp, uid, uid); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// testRun uses the programs of an unpacked image.
func testRun(t *testing.T, root string, config v1.Config) {
	tmp := publicDir(t)
	server := container(t, root, tmp, config, slices.Concat(config.Entrypoint, config.Cmd, []string{"--listen", "unix:///tmp/s"})...)
	out, err := server.StdoutPipe()
	if err := errors.Join(err, server.Start()); err != nil {
		t.Fatal(err)
	}
	// A server that does not stop is killed, and its exit code fails the test.
	watchdog := time.AfterFunc(2*time.Minute, func() { _ = server.Process.Kill() })
	defer watchdog.Stop()
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "unix:///tmp/s\n" {
		t.Errorf("the server prints %q, %v", line, err)
	}
	client := filepath.Join(root, "usr/bin/execwire")
	got, err := exec.Command(client, "run", "--server", "unix://"+tmp+"/s", "--cwd", "/", "--", "execwire", "version").Output()
	if want := "execwire "; err != nil || !strings.HasPrefix(string(got), want) {
		t.Errorf("execwire version in the container prints %q, %v", got, err)
	}
	if got, err := container(t, root, tmp, config, "/usr/bin/execwire-hub", "--version").Output(); err != nil || !strings.HasPrefix(string(got), "execwire-hub ") {
		t.Errorf("execwire-hub --version prints %q, %v", got, err)
	}
	checks, err := container(t, root, tmp, config, "/usr/bin/execwire", "doctor", "--json").Output()
	var missing []string
	for line := range bytes.Lines(checks) {
		var check struct {
			Check         string
			Works, Advice bool
		}
		if err := json.Unmarshal(line, &check); err != nil {
			t.Error(err)
		}
		if !check.Works && !check.Advice {
			missing = append(missing, check.Check)
		}
	}
	slices.Sort(missing)
	if want := []string{"bubblewrap", "control-groups", "shell", "user-name"}; err != nil || !slices.Equal(missing, want) {
		t.Errorf("doctor reports %q as missing, %v, want %q", missing, err, want)
	}
	first := firstProcess(t, server.Process.Pid)
	if first == 0 {
		t.Fatal("the container has no first process")
	}
	if err := syscall.Kill(first, syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if err := server.Wait(); err != nil {
		t.Errorf("the server ends with %v after SIGTERM", err)
	}
}

// firstProcess returns the descendant that is process 1 of its container, or 0.
func firstProcess(t *testing.T, pid int) int {
	t.Helper()
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if fields := strings.Fields(line); fields[0] == "NSpid:" && len(fields) > 2 && fields[len(fields)-1] == "1" {
			return pid
		}
	}
	children, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/task/" + strconv.Itoa(pid) + "/children")
	for child := range strings.FieldsSeq(string(children)) {
		n, _ := strconv.Atoi(child)
		if found := firstProcess(t, n); found != 0 {
			return found
		}
	}
	return 0
}
