// Command image writes a container image with execwire and execwire-hub for amd64 and arm64
// as an OCI layout, without a container engine. Containerfile makes the same image with one.
//
// There is no base image: both programs are static, so that a shell and a C library would
// only add what has to be updated. The image has the programs, the certificate authorities
// of Mozilla (of the module golang.org/x/crypto/x509roots/fallback, so that go.sum pins
// them), a user, and /tmp. Its time stamps are those of the commit, so that its digest
// depends on nothing but the source.
package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// user is the user of the image. Its group is 0, as that of the random users of OpenShift.
const user = "65532:0"

// platforms are those of the index.
var platforms = []v1.Platform{{OS: "linux", Architecture: "amd64"}, {OS: "linux", Architecture: "arm64"}}

func main() {
	var o options
	flag.StringVar(&o.source, "source", ".", "the `directory` of the repository")
	flag.StringVar(&o.out, "out", "", "the `directory` for the layout, which is replaced")
	flag.StringVar(&o.root, "root", "", "only write the files beside the programs, to this `directory`, for Containerfile")
	flag.StringVar(&o.version, "version", "", "the `version`, without v; default: devel")
	flag.Parse()
	if err := o.run(); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

type options struct{ source, out, root, version string }

func (o options) run() error {
	if o.root != "" {
		return writeFiles(o.root, systemFiles())
	}
	if o.out == "" {
		return errors.New("--out is missing: name a directory")
	}
	commit, created, err := o.commit()
	if err != nil {
		return err
	}
	o.version = cmp.Or(o.version, "devel")
	binaries, err := os.MkdirTemp("", "image-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(binaries) }()
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, platform := range platforms {
		dir := filepath.Join(binaries, platform.Architecture)
		if err := o.build(dir, platform, commit, created); err != nil {
			return err
		}
		image, err := newImage(dir, platform, created, map[string]string{
			"org.opencontainers.image.title":    "execwire",
			"org.opencontainers.image.version":  o.version,
			"org.opencontainers.image.revision": commit,
			"org.opencontainers.image.licenses": "Apache-2.0",
		})
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &platform}})
	}
	if err := os.RemoveAll(o.out); err != nil {
		return err
	}
	if _, err := layout.Write(o.out, mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex),
		mutate.IndexAddendum{Add: index, Descriptor: v1.Descriptor{
			Annotations: map[string]string{"org.opencontainers.image.ref.name": o.version}}})); err != nil {
		return err
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	fmt.Println(digest)
	return nil
}

// commit returns the commit of the source, with +changes if files differ from it, and its
// time.
func (o options) commit() (hash string, at time.Time, err error) {
	out, err := exec.Command("git", "-C", o.source, "log", "-1", "--format=%H %cI").Output()
	changes, statusErr := exec.Command("git", "-C", o.source, "status", "--porcelain").Output()
	if err := errors.Join(err, statusErr); err != nil {
		return "", at, fmt.Errorf("failed to find the commit of %s: %w", o.source, err)
	}
	hash, text, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	if len(changes) > 0 {
		hash += "+changes"
	}
	at, err = time.Parse(time.RFC3339, text)
	return hash, at.UTC(), err
}

// build builds the programs of one platform.
func (o options) build(dir string, platform v1.Platform, commit string, created time.Time) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	build := exec.Command("scripts/build-programs", dir, o.version, commit, created.Format(time.RFC3339), "execwire", "execwire-hub")
	build.Dir, build.Stderr = o.source, os.Stderr
	build.Env = append(os.Environ(), "GOOS="+platform.OS, "GOARCH="+platform.Architecture)
	return build.Run()
}

// newImage returns the image of one platform, with a layer that rarely changes and one
// with the programs.
func newImage(binaries string, platform v1.Platform, created time.Time, labels map[string]string) (v1.Image, error) {
	system, err := newLayer(systemFiles())
	if err != nil {
		return nil, err
	}
	programs := []entry{{name: "usr/", mode: 0o755}, {name: "usr/bin/", mode: 0o755}}
	for _, name := range []string{"execwire", "execwire-hub"} {
		content, err := os.ReadFile(filepath.Join(binaries, name))
		if err != nil {
			return nil, err
		}
		programs = append(programs, entry{name: "usr/bin/" + name, mode: 0o755, content: content})
	}
	top, err := newLayer(programs)
	if err != nil {
		return nil, err
	}
	history := v1.History{Created: v1.Time{Time: created}, CreatedBy: "tools/deploy/image"}
	image, err := mutate.Append(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON),
		mutate.Addendum{Layer: system, History: history}, mutate.Addendum{Layer: top, History: history})
	if err != nil {
		return nil, err
	}
	return mutate.ConfigFile(image, configFile(image, platform, created, labels))
}

// configFile returns the configuration of an image: what Containerfile says, too.
func configFile(image v1.Image, platform v1.Platform, created time.Time, labels map[string]string) *v1.ConfigFile {
	config, err := image.ConfigFile()
	if err != nil {
		panic(err) // it is in memory
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = platform.OS, platform.Architecture, v1.Time{Time: created}
	config.Config = v1.Config{
		User:         user,
		Env:          []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/tmp"},
		Entrypoint:   []string{"/usr/bin/execwire"},
		Cmd:          []string{"serve"},
		WorkingDir:   "/tmp",
		ExposedPorts: map[string]struct{}{"7420/tcp": {}, "7430/tcp": {}},
		StopSignal:   "SIGTERM",
		Labels:       labels,
	}
	return config
}

// entry is a file, or a directory if its name ends with a slash.
type entry struct {
	name    string
	mode    int64
	content []byte
}

// systemFiles are the files of the image beside the programs.
func systemFiles() []entry {
	return []entry{
		{name: "etc/", mode: 0o755},
		{name: "etc/passwd", mode: 0o644, content: []byte("root:x:0:0:root:/tmp:/sbin/nologin\nexecwire:x:65532:0:execwire:/tmp:/sbin/nologin\n")},
		{name: "etc/group", mode: 0o644, content: []byte("root:x:0:\n")},
		{name: "etc/ssl/", mode: 0o755},
		{name: "etc/ssl/certs/", mode: 0o755},
		{name: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, content: authorities()},
		{name: "tmp/", mode: 0o1777},
	}
}

// authorities returns the certificate authorities as PEM. Those that are only trusted with
// a constraint on their certificates are left out, because PEM cannot express it.
func authorities() []byte {
	var text bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // a Buffer never fails
		}
	}
	return text.Bytes()
}

// newLayer returns a layer with files of root.
func newLayer(entries []entry) (v1.Layer, error) {
	var text bytes.Buffer
	w := tar.NewWriter(&text)
	for _, e := range entries {
		header := &tar.Header{Name: e.name, Mode: e.mode, Size: int64(len(e.content)), Typeflag: tar.TypeReg}
		if strings.HasSuffix(e.name, "/") {
			header.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(e.content); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text.Bytes())), nil },
		tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.BestCompression), tarball.WithCompressedCaching)
}

// writeFiles writes files to a directory.
func writeFiles(dir string, entries []entry) error {
	for _, e := range entries {
		path := filepath.Join(dir, filepath.FromSlash(e.name))
		var err error
		if strings.HasSuffix(e.name, "/") {
			err = os.MkdirAll(path, 0o755)
		} else {
			err = os.WriteFile(path, e.content, 0o644)
		}
		mode := os.FileMode(e.mode & 0o777)
		if e.mode&0o1000 != 0 {
			mode |= os.ModeSticky
		}
		if err := errors.Join(err, os.Chmod(path, mode)); err != nil {
			return err
		}
	}
	return nil
}
