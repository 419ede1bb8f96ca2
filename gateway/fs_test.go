package gateway

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/execwire/execwire/gateway/files"
	"github.com/execwire/execwire/internal/testrace"
)

// withSmallFiles limits files that are read in one message to 1 MiB.
func withSmallFiles(s *serverSettings) { s.limits.ReadFileBytes = 1 << 20 }

// literalCall is a literal file request and its response, with T for the
// directory of the test, which is a path in one dialect and a URI in the
// other.
type literalCall struct{ method, params, answer string }

// checkCalls makes calls in both dialects, each in a directory of its own.
func checkCalls(t *testing.T, prepare func(dir string), calls []literalCall) {
	t.Helper()
	srv := newTestServer(t, withSmallFiles)
	for _, dialect := range []string{"", "file://"} {
		dir := t.TempDir()
		prepare(dir)
		cl, _ := srv.attach("")
		for _, q := range calls {
			params := strings.ReplaceAll(strings.ReplaceAll(q.params, `"/`, `"`+dialect+`/`), `"T`, `"`+dialect+dir)
			want := strings.ReplaceAll(strings.ReplaceAll(q.answer, `"T`, `"`+dialect+dir), "DIR", dir)
			f := cl.call(q.method, json.RawMessage(params))
			got := string(f.Result)
			if f.Error != nil {
				got = fmt.Sprintf("%d %s", f.Error.Code, f.Error.Message)
			}
			if got != want {
				t.Errorf("%s %s returned\n\t%s, want\n\t%s", q.method, params, got, want)
			}
		}
	}
}

// do fails the test when a preparation fails.
func do(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

const (
	missing = "-32004 No such file or directory (os error 2)"
	noDir   = "-32603 Not a directory (os error 20)"
	isDir   = "-32603 Is a directory (os error 21)"
	exists  = "-32603 File exists (os error 17)"
	full    = "-32603 Directory not empty (os error 39)"
)

func TestGetMetadata(t *testing.T) {
	when := time.UnixMilli(1500)
	checkCalls(t, func(dir string) {
		do(t, os.WriteFile(dir+"/f", []byte("12345"), 0o644), os.Mkdir(dir+"/d", 0o755), os.Symlink("f", dir+"/lf"), os.Symlink("d", dir+"/ld"),
			os.Symlink("nowhere", dir+"/dangling"), os.Symlink("loop", dir+"/loop"), syscall.Mkfifo(dir+"/fifo", 0o644), os.WriteFile(dir+"/old", nil, 0o644),
			os.Chtimes(dir+"/f", when, when), os.Chtimes(dir+"/fifo", when, when), os.Chtimes(dir+"/old", time.Unix(-5, 0), time.Unix(-5, 0)))
	}, []literalCall{
		{"fs/getMetadata", `{"path":"T/f","sandbox":null}`, `{"isDirectory":false,"isFile":true,"isSymlink":false,"size":5,"createdAtMs":0,"modifiedAtMs":1500}`},
		{"fs/getMetadata", `{"path":"T/lf","extra":1}`, `{"isDirectory":false,"isFile":true,"isSymlink":true,"size":5,"createdAtMs":0,"modifiedAtMs":1500}`},
		{"fs/getMetadata", `["T/f"]`, `{"isDirectory":false,"isFile":true,"isSymlink":false,"size":5,"createdAtMs":0,"modifiedAtMs":1500}`},
		{"fs/getMetadata", `{"path":"T/fifo"}`, `{"isDirectory":false,"isFile":false,"isSymlink":false,"size":0,"createdAtMs":0,"modifiedAtMs":1500}`},
		{"fs/getMetadata", `{"path":"T/old"}`, `{"isDirectory":false,"isFile":true,"isSymlink":false,"size":0,"createdAtMs":0,"modifiedAtMs":0}`},
		{"fs/getMetadata", `{"path":"T/dangling"}`, missing},
		{"fs/getMetadata", `{"path":"T/loop"}`, "-32603 Symbolic link loop (os error 40)"},
		{"fs/getMetadata", `{"path":"T/none/x"}`, missing},
		{"fs/getMetadata", `{"path":"T/f/x"}`, noDir},
		{"fs/getMetadata", `{"path":"T/` + strings.Repeat("x", 300) + `"}`, "-32603 Filename too long (os error 36)"},
		{"fs/getMetadata", `{}`, "-32602 missing field `path`"},
		{"fs/getMetadata", `null`, "-32602 invalid type: null, expected struct FsGetMetadataParams"},
		{"fs/getMetadata", `{"path":null}`, "-32602 invalid type: null, expected a string"},
		{"fs/getMetadata", `{"path":5}`, "-32602 invalid type: integer `5`, expected a string"},
		{"fs/getMetadata", `{"path":"f"}`, "-32602 invalid URI: relative URL without a base"},
	})
}

func TestReadAndWriteFile(t *testing.T) {
	checkCalls(t, func(dir string) {
		do(t, os.WriteFile(dir+"/f", []byte("\x00\xff text"), 0o640), os.Mkdir(dir+"/d", 0o755), os.Symlink("f", dir+"/lf"), os.Symlink("d", dir+"/ld"),
			os.Symlink("made", dir+"/dangling"), syscall.Mkfifo(dir+"/fifo", 0o644))
	}, []literalCall{
		{"fs/readFile", `{"path":"T/f","sandbox":null}`, `{"dataBase64":"AP8gdGV4dA=="}`},
		{"fs/readFile", `{"path":"T/lf"}`, `{"dataBase64":"AP8gdGV4dA=="}`},
		{"fs/readFile", `{"path":"T/d"}`, "-32600 path `DIR/d` is not a file"},
		{"fs/readFile", `{"path":"T/ld"}`, "-32600 path `DIR/ld` is not a file"},
		{"fs/readFile", `{"path":"T/fifo"}`, "-32600 path `DIR/fifo` is not a file"},
		{"fs/readFile", `{"path":"/dev/null"}`, "-32600 path `/dev/null` is not a file"},
		{"fs/readFile", `{"path":"/dev/zero"}`, "-32600 path `/dev/zero` is not a file"},
		{"fs/readFile", `{"path":"T/dangling"}`, missing},
		{"fs/readFile", `{"path":"T/f/x"}`, noDir},
		{"fs/writeFile", `{"path":"T/f","dataBase64":"c2hvcnQ=","sandbox":null}`, `{}`},
		{"fs/readFile", `{"path":"T/f"}`, `{"dataBase64":"c2hvcnQ="}`},
		{"fs/writeFile", `{"path":"T/dangling","dataBase64":""}`, `{}`},
		{"fs/readFile", `{"path":"T/made"}`, `{"dataBase64":""}`},
		{"fs/writeFile", `{"path":"T/d","dataBase64":"eA=="}`, isDir},
		{"fs/writeFile", `{"path":"T/fifo","dataBase64":"eA=="}`, "-32600 path `DIR/fifo` is not a file"},
		{"fs/writeFile", `{"path":"T/no/such","dataBase64":"eA=="}`, missing},
		{"fs/writeFile", `{"path":"/dev/full","dataBase64":"eA=="}`, "-32603 No space left on device (os error 28)"},
		{"fs/writeFile", `{"path":"/proc/version","dataBase64":"eA=="}`, "-32603 I/O error (os error 5)"},
		{"fs/writeFile", `{"path":"T/bad","dataBase64":"***"}`, "-32600 fs/writeFile requires valid base64 dataBase64: Invalid symbol 42, offset 0."},
		{"fs/writeFile", `{"path":"T/bad","dataBase64":"aGk"}`, "-32600 fs/writeFile requires valid base64 dataBase64: Invalid padding"},
		{"fs/writeFile", `{"path":"T/bad","dataBase64":"aGk=\n"}`, "-32600 fs/writeFile requires valid base64 dataBase64: Invalid symbol 10, offset 4."},
		{"fs/writeFile", `{"path":"T/bad","dataBase64":null}`, "-32602 invalid type: null, expected a string"},
		{"fs/writeFile", `{"path":"T/bad"}`, "-32602 missing field `dataBase64`"},
		{"fs/getMetadata", `{"path":"T/bad"}`, missing},
	})
}

func TestCreateReadAndRemoveDirectory(t *testing.T) {
	checkCalls(t, func(dir string) {
		do(t, os.WriteFile(dir+"/f", nil, 0o644), os.Symlink("nowhere", dir+"/dangling"))
	}, []literalCall{
		{"fs/createDirectory", `{"path":"T/p/q/r"}`, `{}`},
		{"fs/createDirectory", `{"path":"T/p/q/r","recursive":null,"sandbox":null}`, `{}`},
		{"fs/createDirectory", `{"path":"T/a","recursive":false}`, `{}`},
		{"fs/createDirectory", `{"path":"T/a","recursive":false}`, exists},
		{"fs/createDirectory", `{"path":"T/b/c","recursive":false}`, missing},
		{"fs/createDirectory", `{"path":"T/f","recursive":true}`, exists},
		{"fs/createDirectory", `{"path":"T/f/x","recursive":true}`, noDir},
		{"fs/createDirectory", `{"path":"T/dangling"}`, exists},
		{"fs/createDirectory", `{"path":"T/z","recursive":"yes"}`, `-32602 invalid type: string "yes", expected a boolean`},
		{"fs/readDirectory", `{"path":"T/p","sandbox":null}`, `{"entries":[{"fileName":"q","isDirectory":true,"isFile":false}]}`},
		{"fs/readDirectory", `{"path":"T/a"}`, `{"entries":[]}`},
		{"fs/readDirectory", `{"path":"T/f"}`, noDir},
		{"fs/readDirectory", `{"path":"T/none"}`, missing},
		{"fs/remove", `{"path":"T/p","recursive":false}`, full},
		{"fs/remove", `{"path":"T/p","recursive":null,"force":null}`, `{}`},
		{"fs/remove", `{"path":"T/p","force":false}`, missing},
		{"fs/remove", `{"path":"T/p/x"}`, `{}`},
		{"fs/remove", `{"path":"T/f/x"}`, noDir},
		{"fs/remove", `{"path":"T/dangling"}`, `{}`},
		{"fs/remove", `{"path":"/","recursive":false}`, "-32603 Resource busy (os error 16)"},
		{"fs/remove", `{"path":"T/a","recursive":"x"}`, `-32602 invalid type: string "x", expected a boolean`},
	})
}

func TestCopyAndCanonicalize(t *testing.T) {
	checkCalls(t, func(dir string) {
		do(t, os.WriteFile(dir+"/f", []byte("src"), 0o750), os.Mkdir(dir+"/d", 0o755), os.WriteFile(dir+"/d/a", nil, 0o644), os.Symlink("f", dir+"/lf"),
			syscall.Mkfifo(dir+"/fifo", 0o644))
	}, []literalCall{
		{"fs/copy", `{"sourcePath":"T/f","destinationPath":"T/f","recursive":false,"sandbox":null}`, `{}`},
		{"fs/readFile", `{"path":"T/f"}`, `{"dataBase64":"c3Jj"}`},
		{"fs/copy", `{"sourcePath":"T/f","destinationPath":"T/d","recursive":true}`, isDir},
		{"fs/copy", `{"sourcePath":"T/f","destinationPath":"T/none/x","recursive":false}`, missing},
		{"fs/copy", `{"sourcePath":"T/none","destinationPath":"T/x","recursive":false}`, missing},
		{"fs/copy", `{"sourcePath":"T/d","destinationPath":"T/e","recursive":false}`, "-32600 fs/copy requires recursive: true when sourcePath is a directory"},
		{"fs/copy", `{"sourcePath":"T/d","destinationPath":"T/e","recursive":true}`, `{}`},
		{"fs/copy", `{"sourcePath":"T/d","destinationPath":"T/f","recursive":true}`, exists},
		{"fs/copy", `{"sourcePath":"T/d","destinationPath":"T/d/x","recursive":true}`, "-32600 fs/copy cannot copy a directory to itself or one of its descendants"},
		{"fs/copy", `{"sourcePath":"T/fifo","destinationPath":"T/x","recursive":true}`, "-32600 fs/copy only supports regular files, directories, and symlinks"},
		{"fs/copy", `{"sourcePath":"T/lf","destinationPath":"T/f","recursive":true}`, exists},
		{"fs/copy", `{"sourcePath":"T/f","destinationPath":"T/x"}`, "-32602 missing field `recursive`"},
		{"fs/copy", `{"sourcePath":"T/f","destinationPath":"T/x","recursive":null}`, "-32602 invalid type: null, expected a boolean"},
		{"fs/copy", `{"sourcePath":"T/f","destinationPath":"x","recursive":false}`, "-32602 invalid URI: relative URL without a base"},
		{"fs/canonicalize", `{"path":"T/d/../lf","sandbox":null}`, `{"path":"T/f"}`},
		{"fs/canonicalize", `{"path":"T/none"}`, missing},
	})
}

func TestCanonicalize_KeepsPathForm(t *testing.T) {
	srv := newTestServer(t, withSmallFiles)
	cl, _ := srv.attach("")
	dir := t.TempDir()
	do(t, os.WriteFile(dir+"/sp ace%41", nil, 0o644), os.WriteFile(dir+"/bad\xff", nil, 0o644))
	for asked, want := range map[string]string{
		dir + "/sp ace%41":                       dir + "/sp ace%41",
		"file://" + dir + "/sp%20ace%2541":       "file://" + dir + "/sp%20ace%2541",
		"FILE://localhost" + dir + "/bad%ff":     "file://" + dir + "/bad%FF",
		"file:" + (&url.URL{Path: dir}).String(): "file://" + dir,
	} {
		var got struct{ Path string }
		cl.decode(cl.must("fs/canonicalize", map[string]any{"path": asked}), &got)
		if got.Path != want {
			t.Errorf("%q: got %q, want %q", asked, got.Path, want)
		}
	}
	cl.must("fs/writeFile", map[string]any{"path": "file://" + dir + "/bad%ff", "dataBase64": "eA=="})
	cl.must("fs/copy", map[string]any{"sourcePath": "file://" + dir + "/bad%ff", "destinationPath": dir + "/copy", "recursive": false})
	cl.must("fs/remove", map[string]any{"path": "file://" + dir + "/bad%ff", "force": false})
	if got, err := os.ReadFile(dir + "/copy"); err != nil || string(got) != "x" {
		t.Errorf("the copy has %q: %v", got, err)
	}
}

func TestReadDirectory_OmitsDanglingLinks(t *testing.T) {
	srv := newTestServer(t, withSmallFiles)
	cl, _ := srv.attach("")
	dir := t.TempDir()
	do(t, os.WriteFile(dir+"/.f", nil, 0o644), os.Mkdir(dir+"/d", 0o755), os.Symlink(".f", dir+"/lf"), os.Symlink("d", dir+"/ld"), os.Symlink("nowhere", dir+"/dangling"),
		os.Symlink("loop", dir+"/loop"), syscall.Mkfifo(dir+"/fifo", 0o644), os.WriteFile(dir+"/bad\xff", nil, 0o644), os.WriteFile(dir+"/bad\xff\xfe", nil, 0o644))
	type entry struct {
		FileName            string
		IsDirectory, IsFile bool
		FileNameBase64      string
	}
	var got struct{ Entries []entry }
	cl.decode(cl.must("fs/readDirectory", map[string]any{"path": dir}), &got)
	slices.SortFunc(got.Entries, func(a, b entry) int { return strings.Compare(a.FileName, b.FileName) })
	want := []entry{{".f", false, true, ""}, {"bad\uFFFD", false, true, "YmFk/w=="}, {"bad\uFFFD\uFFFD", false, true, "YmFk//4="}, {"d", true, false, ""}, {"fifo", false, false, ""}, {"ld", true, false, ""}, {"lf", false, true, ""}}
	if !slices.Equal(got.Entries, want) {
		t.Errorf("the entries are %v, want %v", got.Entries, want)
	}
}

// wantUnconfined checks the error of a server that cannot confine.
func wantUnconfined(t *testing.T, refusal *wireError) {
	t.Helper()
	if refusal.Data["reason"] != "SANDBOX_UNAVAILABLE" {
		t.Errorf("the error is %+v, want the reason SANDBOX_UNAVAILABLE", refusal)
	}
}

// A server without a sandbox backend rejects every call with a sandbox of any
// shape.
func TestFileSandbox_NoBackend_Fails(t *testing.T) {
	srv := newTestServer(t, withSmallFiles)
	cl, _ := srv.attach("")
	dir := t.TempDir()
	do(t, os.WriteFile(dir+"/f", []byte("kept"), 0o644))
	sandbox := func(permissions string) map[string]any {
		return map[string]any{"path": dir + "/f", "dataBase64": "eA==", "sandbox": json.RawMessage(permissions)}
	}
	const level = `,"windowsSandboxLevel":"disabled"}`
	for _, refusing := range []string{
		`{"permissions":{"type":"managed","file_system":{"type":"restricted","entries":[]},"network":"restricted"}` + level,
		`{"permissions":{"file_system":{"read":[],"write":[]}}` + level,
		`{"permissions":{}` + level,
	} {
		for _, method := range []string{"fs/writeFile", "fs/readFile", "fs/getMetadata", "fs/remove", "fs/createDirectory", "fs/readDirectory", "fs/canonicalize"} {
			wantUnconfined(t, cl.refused(method, sandbox(refusing), -32600, ""))
		}
		params := map[string]any{"sourcePath": dir + "/f", "destinationPath": dir + "/g", "recursive": false, "sandbox": json.RawMessage(refusing)}
		wantUnconfined(t, cl.refused("fs/copy", params, -32600, ""))
	}
	cl.refused("fs/writeFile", sandbox(`{}`), -32602, "missing field `permissions`")
	older := func(policy string) map[string]any {
		return map[string]any{"path": dir + "/f", "dataBase64": "eA==", "sandboxPolicy": json.RawMessage(policy),
			"sourcePath": dir + "/f", "destinationPath": dir + "/g", "recursive": false,
			"handleId": "h", "options": map[string]any{"maxDepth": 1, "maxDirectories": 1, "maxEntries": 1},
			"watchId": 1, "missing": []string{dir + "/missing"}}
	}
	pathless := []string{"fs/readBlock", "fs/writeBlock", "fs/close", "fs/unwatch"} // without a path
	for method, known := range methods {
		if known.group == groupFiles && !slices.Contains(pathless, method) {
			wantUnconfined(t, cl.refused(method, older(`{"type":"readOnly","networkAccess":false}`), -32600, ""))
			wantUnconfined(t, cl.refused(method, older(`{"type":"workspaceWrite","writableRoots":[]}`), -32600, ""))
			cl.refused(method, older(`{}`), -32602, "missing field `type`")
		}
	}
	if got, err := os.ReadFile(dir + "/f"); err != nil || string(got) != "kept" {
		t.Errorf("the file has %q: %v", got, err)
	}
	for _, free := range []string{
		`{"permissions":{"type":"disabled"}` + level, `{"permissions":{"type":"external","network":"restricted"}` + level,
		`{"permissions":{"type":"managed","file_system":{"type":"unrestricted"},"network":"restricted"}` + level, `null`,
	} {
		cl.must("fs/writeFile", sandbox(free))
	}
	for _, free := range []string{`{"type":"dangerFullAccess"}`, `{"type":"externalSandbox","networkAccess":"restricted"}`, `null`} {
		cl.must("fs/writeFile", older(free))
	}
}

// The sizes are around the limits of messages and of groups of three bytes.
func TestWriteAndReadFile_Sizes(t *testing.T) {
	testrace.Slow(t)
	srv := newTestServer(t, func(s *serverSettings) { s.limits.ReadFileBytes = 64 << 10 })
	cl, _ := srv.attach("")
	path := filepath.Join(t.TempDir(), "f")
	for _, size := range []int{0, 1, 2, 3, 64 << 10, 64<<10 + 1, 64<<10 + 2, 3 * 32_700, 3*32_700 + 1, 3*32_700 + 2, files.WholeWrite, files.WholeWrite + 1, files.WholeWrite + files.PieceWrite, files.WholeWrite + files.PieceWrite + 1} {
		data := bytes.Repeat([]byte("a pattern of 23 letters"), size/23+1)[:size]
		cl.must("fs/writeFile", map[string]any{"path": path, "dataBase64": base64.StdEncoding.EncodeToString(data)})
		var got struct{ DataBase64 []byte }
		cl.decode(cl.must("fs/readFile", map[string]any{"path": path}), &got)
		if !bytes.Equal(got.DataBase64, data) {
			t.Errorf("want %d bytes, got %d or a different content", size, len(got.DataBase64))
		}
	}
}

func TestReadFile_AboveLimit_Fails(t *testing.T) {
	srv := newTestServer(t, withSmallFiles)
	cl, _ := srv.attach("")
	path := filepath.Join(t.TempDir(), "f")
	do(t, writeMany(path, maxContent+1))
	cl.refused("fs/readFile", map[string]any{"path": path}, -32600, "file is too large to read: limit is 536870912 bytes")
	cl.must("fs/getMetadata", map[string]any{"path": path})
}

// Pipelined calls have the same effects as calls that wait for responses.
func TestFileCalls_Pipelined_KeepOrder(t *testing.T) {
	srv := newTestServer(t, withSmallFiles)
	cl, _ := srv.attach("")
	dir := t.TempDir()
	var reads []string
	const rounds = 100
	for i := range rounds {
		content := base64.StdEncoding.EncodeToString(fmt.Append(nil, i))
		cl.ask("fs/createDirectory", map[string]any{"path": dir + "/d"})
		cl.ask("fs/writeFile", map[string]any{"path": dir + "/d/f", "dataBase64": content})
		reads = append(reads, cl.ask("fs/readFile", map[string]any{"path": dir + "/d/f"}))
		cl.ask("fs/remove", map[string]any{"path": "file://" + dir + "/d"})
	}
	for i, id := range reads {
		f := cl.reply(id)
		var got struct{ DataBase64 []byte }
		if f.Error != nil {
			t.Fatalf("read %d failed: %v", i, f.Error)
		}
		cl.decode(f.Result, &got)
		if string(got.DataBase64) != fmt.Sprint(i) {
			t.Errorf("read %d returned %q", i, got.DataBase64)
		}
	}
}

// writeMany makes a file of zero bytes.
func writeMany(path string, size int64) error {
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		return err
	}
	return os.Truncate(path, size)
}
