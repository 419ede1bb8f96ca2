package gateway

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"os"
	"syscall"
	"testing"

	"github.com/execwire/execwire/gateway/files"
)

func hexSum(text string) string {
	digest := sha256.Sum256([]byte(text))
	return hex.EncodeToString(digest[:])
}

func TestReplaceAndRename(t *testing.T) {
	const changed = "-32600 failed to write DIR/f: it has not the content that was to be replaced: read it again"
	checkCalls(t, func(dir string) {
		do(t, os.WriteFile(dir+"/f", []byte("old"), 0o640), os.Link(dir+"/f", dir+"/same"), os.Mkdir(dir+"/d", 0o755), os.WriteFile(dir+"/d/x", nil, 0o644),
			os.Mkdir(dir+"/empty", 0o755), os.Symlink("f", dir+"/l"), syscall.Mkfifo(dir+"/fifo", 0o644))
	}, []literalCall{
		{"fs/writeFile", `{"path":"T/f","dataBase64":"bmV3","ifMatchSha256":"` + hexSum("other") + `"}`, changed},
		{"fs/writeFile", `{"path":"T/f","dataBase64":"bmV3","ifMissing":true}`, exists},
		{"fs/writeFile", `{"path":"T/l","dataBase64":"bmV3","atomic":true,"modifiedAtMs":2500,"ifMatchSha256":"` + hexSum("old") + `","sandbox":null}`, `{}`},
		{"fs/readFile", `{"path":"T/f"}`, `{"dataBase64":"bmV3"}`},
		{"fs/readFile", `{"path":"T/same"}`, `{"dataBase64":"b2xk"}`},
		{"fs/getMetadata", `{"path":"T/l"}`, `{"isDirectory":false,"isFile":true,"isSymlink":true,"size":3,"createdAtMs":0,"modifiedAtMs":2500}`},
		{"fs/writeFile", `{"path":"T/same","dataBase64":"aW4=","atomic":false,"ifMissing":false,"mode":null}`, `{}`},
		{"fs/writeFile", `{"path":"T/g","dataBase64":"","ifMissing":true,"mode":384,"modifiedAtMs":1500}`, `{}`},
		{"fs/getMetadata", `{"path":"T/g"}`, `{"isDirectory":false,"isFile":true,"isSymlink":false,"size":0,"createdAtMs":0,"modifiedAtMs":1500}`},
		{"fs/writeFile", `{"path":"T/d","dataBase64":"","atomic":true}`, isDir},
		{"fs/writeFile", `{"path":"T/fifo","dataBase64":"","atomic":true}`, "-32600 path `DIR/fifo` is not a file"},
		{"fs/writeFile", `{"path":"T/no/f","dataBase64":"","atomic":true}`, missing},
		{"fs/writeFile", `{"path":"T/f","dataBase64":"","atomic":false,"mode":384}`, "-32602 ifMatchSha256, ifMissing, mode and modifiedAtMs need atomic: leave it out"},
		{"fs/writeFile", `{"path":"T/f","dataBase64":"","ifMatchSha256":"x"}`, "-32602 ifMatchSha256 is not a SHA-256: give its 64 hexadecimal digits"},
		{"fs/writeFile", `{"path":"T/f","dataBase64":"","mode":-1}`, "-32602 invalid value: integer `-1`, expected u32"},

		{"fs/rename", `{"sourcePath":"T/f","destinationPath":"T/g","noReplace":true}`, exists},
		{"fs/rename", `{"sourcePath":"T/f","destinationPath":"T/g","noReplace":null,"sandbox":null}`, `{}`},
		{"fs/readFile", `{"path":"T/g"}`, `{"dataBase64":"bmV3"}`},
		{"fs/rename", `{"sourcePath":"T/f","destinationPath":"T/g"}`, missing},
		{"fs/rename", `{"sourcePath":"T/empty","destinationPath":"T/d"}`, full},
		{"fs/rename", `{"sourcePath":"T/d","destinationPath":"T/empty"}`, `{}`},
		{"fs/rename", `{"sourcePath":"T/empty","destinationPath":"T/empty/y"}`, "-32600 Invalid argument (os error 22)"},
		{"fs/rename", `{"sourcePath":"T/empty","destinationPath":"T/g"}`, noDir},
		{"fs/rename", `{"sourcePath":"T/g","destinationPath":"T/empty"}`, isDir},
		{"fs/rename", `{"sourcePath":"T/g"}`, "-32602 missing field `destinationPath`"},
		{"fs/rename", `{"sourcePath":"g","destinationPath":"T/h"}`, "-32602 invalid URI: relative URL without a base"},
		{"fs/rename", `["T/g","T/h"]`, `{}`},
	})
}

func TestWriteFile_LargeFile_IsReplaced(t *testing.T) {
	srv := newTestServer(t, withSmallFiles)
	cl, _ := srv.attach("")
	path := t.TempDir() + "/f"
	data := bytes.Repeat([]byte("a pattern of 23 letters"), (files.WholeWrite+files.PieceWrite)/23)
	cl.must("fs/writeFile", map[string]any{"path": path, "dataBase64": base64.StdEncoding.EncodeToString(data), "atomic": true, "mode": 0o600})
	got, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("want %d bytes, got %d or a different content: %v", len(data), len(got), err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file is %v: %v", info, err)
	}
}
