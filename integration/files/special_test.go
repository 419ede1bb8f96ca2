package files

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
)

// specialFiles create files without content of their own or without an end. None of the devices
// stores anything.
var specialFiles = map[string]func(path string) error{
	"a FIFO": func(path string) error { return unix.Mkfifo(path, 0o666) },
	"a socket": func(path string) error {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			return err
		}
		l.SetUnlinkOnClose(false)
		return l.Close()
	},
	"a device that takes everything":  func(path string) error { return unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))) },
	"a device of zeros without end":   func(path string) error { return unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5))) },
	"a block device that is nowhere":  func(path string) error { return unix.Mknod(path, unix.S_IFBLK|0o666, int(unix.Mkdev(240, 199))) },
	"a link to a FIFO with no reader": func(path string) error { return os.Symlink("fifo", path) },
}

// placeOf creates a directory with a special file s, a FIFO as a target of links, and a file f.
func placeOf(t *testing.T, makeSpecial func(path string) error) (dir string) {
	t.Helper()
	dir = harness.ShortDir(t)
	for _, err := range []error{
		unix.Mkfifo(filepath.Join(dir, "fifo"), 0o666),
		os.WriteFile(filepath.Join(dir, "f"), []byte("content"), 0o600),
		makeSpecial(filepath.Join(dir, "s")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// openings reports which files are opened.
type openings int

func watchOpenings(t *testing.T) openings {
	t.Helper()
	watch, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(watch) })
	return openings(watch)
}

// of starts to watch a file.
func (o openings) of(t *testing.T, path string) {
	t.Helper()
	if _, err := unix.InotifyAddWatch(int(o), path, unix.IN_OPEN); err != nil {
		t.Fatal(err)
	}
}

// any reports whether a file was opened since the last call.
func (o openings) any() bool {
	_, err := unix.Read(int(o), make([]byte, 4096))
	return err != unix.EAGAIN
}

// Every call on a special file ends, in whatever way the file is named. It creates no file with
// content, and does not open a FIFO, at whose other end a process may wait.
func TestSpecialFiles_DoNotHang(t *testing.T) {
	s, opened := harness.NewServer(t, nil), watchOpenings(t)
	refusedAlways := []protoreflect.Name{"ReadFile", "DownloadFile", "OpenFile"}
	for _, d := range []harness.Transport{harness.InProcess, harness.TCPTransport} {
		conn, _ := s.Connect(t, d)
		for kind, makeSpecial := range specialFiles {
			for _, m := range pathMethods(t) {
				for i := range m.paths {
					dir := placeOf(t, makeSpecial)
					opened.of(t, filepath.Join(dir, "fifo"))
					paths := slices.Repeat([]string{filepath.Join(dir, "f")}, len(m.paths))
					paths[i] = filepath.Join(dir, "s")
					_, err := m.call(harness.Context(t), t, conn, paths...)
					what := fmt.Sprintf("%s, %s of %s, %s", d, m.paths[i].Name(), m.Name(), kind)
					switch reason := client.Reason(err); {
					case slices.Contains(refusedAlways, m.Name()) && reason != execwirev1.ErrorReason_ERROR_REASON_NOT_A_REGULAR_FILE:
						t.Errorf("%s: %v", what, err)
					case err == nil:
					case reason == 0, reason == execwirev1.ErrorReason_ERROR_REASON_INTERNAL, reason == execwirev1.ErrorReason_ERROR_REASON_INVALID_FIELD:
						t.Errorf("%s: %v", what, err)
					}
					if opened.any() {
						t.Errorf("%s: the FIFO was opened", what)
					}
				}
			}
		}
	}
}

// fileMethods are the methods of JSON-RPC that name paths, with the parameters
// they need for one of them.
var fileMethods = map[string]func(path, other string) harness.RPCParams{
	"fs/readFile":        func(path, _ string) harness.RPCParams { return harness.RPCParams{"path": path} },
	"fs/writeFile":       func(path, _ string) harness.RPCParams { return harness.RPCParams{"path": path, "dataBase64": ""} },
	"fs/createDirectory": func(path, _ string) harness.RPCParams { return harness.RPCParams{"path": path} },
	"fs/getMetadata":     func(path, _ string) harness.RPCParams { return harness.RPCParams{"path": path} },
	"fs/readDirectory":   func(path, _ string) harness.RPCParams { return harness.RPCParams{"path": path} },
	"fs/remove":          func(path, _ string) harness.RPCParams { return harness.RPCParams{"path": path} },
	"fs/canonicalize":    func(path, _ string) harness.RPCParams { return harness.RPCParams{"path": path} },
	"fs/open": func(path, _ string) harness.RPCParams {
		return harness.RPCParams{"handleId": harness.ProcessID(), "path": path}
	},
	"fs/open to replace": func(path, _ string) harness.RPCParams {
		return harness.RPCParams{"handleId": harness.ProcessID(), "path": path, "mode": "replace"}
	},
	"fs/walk": func(path, _ string) harness.RPCParams {
		return harness.RPCParams{"path": path, "options": harness.RPCParams{"maxDepth": 9, "maxDirectories": 100, "maxEntries": 100}}
	},
	"fs/watch": func(path, _ string) harness.RPCParams {
		return harness.RPCParams{"watchId": harness.ProcessID(), "path": path}
	},
	"fs/watchMissing": func(path, _ string) harness.RPCParams {
		return harness.RPCParams{"watchId": harness.ProcessID(), "missing": []string{path}}
	},
	"fs/rename": func(path, other string) harness.RPCParams {
		return harness.RPCParams{"sourcePath": path, "destinationPath": other}
	},
	"fs/rename to": func(path, other string) harness.RPCParams {
		return harness.RPCParams{"sourcePath": other, "destinationPath": path}
	},
	"fs/copy": func(path, other string) harness.RPCParams {
		return harness.RPCParams{"sourcePath": path, "destinationPath": other, "recursive": true}
	},
	"fs/copy to": func(path, other string) harness.RPCParams {
		return harness.RPCParams{"sourcePath": other, "destinationPath": path, "recursive": true}
	},
}

func TestSpecialFiles_JSONRPC_DoesNotHang(t *testing.T) {
	c := harness.WebsocketClient(t, harness.NewServer(t, nil).Address(harness.WebsocketTransport)).Initialize("")
	opened := watchOpenings(t)
	for kind, makeSpecial := range specialFiles {
		for name, params := range fileMethods {
			dir := placeOf(t, makeSpecial)
			opened.of(t, filepath.Join(dir, "fifo"))
			method, _, _ := strings.Cut(name, " ")
			answer := c.Call(method, params(filepath.Join(dir, "s"), filepath.Join(dir, "f")))
			code := 0
			if answer.Error != nil {
				code = answer.Error.Code
			}
			switch {
			case slices.Contains([]string{"fs/readFile", "fs/open"}, name) && code != -32600, !slices.Contains([]int{0, -32600, -32603}, code):
				t.Errorf("%s, %s: answered %s, %+v", name, kind, answer.Result, answer.Error)
			case opened.any():
				t.Errorf("%s, %s: the FIFO was opened", name, kind)
			}
		}
	}
}
