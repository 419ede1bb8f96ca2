//go:build linux

package handover

import (
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/reflect/protoreflect"

	handoverv1 "github.com/execwire/execwire/gen/go/execwire/handover/v1"
	"github.com/execwire/execwire/internal/eventlog"
	"github.com/execwire/execwire/internal/session"
)

// fill sets every field of a struct to a value that follows from its path.
func fill(t *testing.T, path string, v reflect.Value) {
	t.Helper()
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(path))
	n := int64(sum.Sum32()%100 + 1)
	switch {
	case v.Type() == typeTime:
		v.Set(reflect.ValueOf(time.Unix(0, n)))
	case v.Type() == typeFile:
		file, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = file.Close() })
		v.Set(reflect.ValueOf(file))
	case v.Type() == typeEvents:
		v.Set(reflect.ValueOf([]eventlog.Event{
			{Seq: 7, Kind: eventlog.Output, Stream: eventlog.Stderr, Offset: 5, UnixNano: n, Data: fmt.Appendf(nil, "output %d", n)},
			{Seq: 8, Kind: eventlog.Exited},
		}))
	case v.Type() == typeBytes:
		v.SetBytes(fmt.Appendf(nil, "bytes %d", n))
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			if name := v.Type().Field(i).Name; !omitted[v.Type()][name] {
				fill(t, path+"."+name, v.Field(i))
			}
		}
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, path, v.Elem())
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(t, path+"[0]", v.Index(0))
		fill(t, path+"[1]", v.Index(1))
	case v.Kind() == reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(t, path+"[key]", key)
		fill(t, path+"[value]", value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case v.Kind() == reflect.Array:
		for i := range v.Len() {
			v.Index(i).SetUint(uint64(i))
		}
	case v.Kind() == reflect.Bool:
		v.SetBool(true)
	case v.Kind() == reflect.String:
		v.SetString(fmt.Sprint("text ", n))
	case v.CanInt():
		v.SetInt(n)
	case v.CanUint():
		v.SetUint(uint64(n))
	default:
		t.Fatalf("there are no values of %v", v.Type())
	}
}

// seal writes a state whose every field is set.
func seal(t *testing.T) (written *session.State, keep *Descriptors, sealed *os.File) {
	t.Helper()
	written, keep = &session.State{}, &Descriptors{}
	fill(t, "state", reflect.ValueOf(written).Elem())
	sealed, err := Seal(&handoverv1.State{ProgramVersion: "v7.8.9"}, written, keep)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sealed.Close() })
	return written, keep, sealed
}

// descriptors are the descriptors of files that were read.
type descriptors map[*os.File]uint32

// file returns a file that is never closed.
func (d descriptors) file(fd uint32) *os.File {
	file := new(os.File)
	d[file] = fd
	return file
}

// Every field of the structs is handed over.
func TestSeal_HandsOverEveryField(t *testing.T) {
	written, keep, sealed := seal(t)
	files := descriptors{}
	read, err := open(sealed, files.file)
	if err != nil {
		t.Fatal(err)
	}
	defer read.Release()
	compare(t, "state", reflect.ValueOf(*written), reflect.ValueOf(*read.Sessions), files)
	if len(files) == 0 || len(files) != len(keep.list) {
		t.Errorf("%d files of %d descriptors", len(files), len(keep.list))
	}
}

// golden is a state of version 1, whose every field is set.
const golden = "testdata/state-1"

// missing are fields that versions after that of the golden state have added.
var missing = map[string]bool{}

// A program goes on with the state of the version before.
func TestOpen_ReadsTheGoldenState(t *testing.T) {
	written, _, sealed := seal(t)
	if os.Getenv("EXECWIRE_UPDATE_GOLDEN") != "" {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(golden, content(t, sealed), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	file, err := os.Open(golden)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	read, err := open(file, descriptors{}.file)
	if err != nil {
		t.Fatal(err)
	}
	defer read.Release()
	compare(t, "state", reflect.ValueOf(*written), reflect.ValueOf(*read.Sessions), nil)
}

// content returns what a memory file contains.
func content(t *testing.T, file *os.File) []byte {
	t.Helper()
	data, err := io.ReadAll(io.NewSectionReader(file, 0, 1<<30))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// compare compares what was written with what was read. Nil files are not compared.
func compare(t *testing.T, path string, want, got reflect.Value, files descriptors) {
	t.Helper()
	switch {
	case missing[path]:
	case want.Type() == typeFile:
		if files != nil && uint32(want.Interface().(*os.File).Fd()) != files[got.Interface().(*os.File)] {
			t.Errorf("%s has another descriptor", path)
		}
	case want.Type() == typeTime:
		if !want.Interface().(time.Time).Equal(got.Interface().(time.Time)) {
			t.Errorf("%s is %v, want %v", path, got, want)
		}
	case want.Kind() == reflect.Struct:
		for i := range want.NumField() {
			compare(t, path+"."+want.Type().Field(i).Name, want.Field(i), got.Field(i), files)
		}
	case want.Kind() == reflect.Pointer && !want.IsNil() && !got.IsNil():
		compare(t, path, want.Elem(), got.Elem(), files)
	case want.Kind() == reflect.Slice && want.Len() == got.Len():
		for i := range want.Len() {
			compare(t, fmt.Sprintf("%s[%d]", path, i), want.Index(i), got.Index(i), files)
		}
	case !reflect.DeepEqual(want.Interface(), got.Interface()):
		t.Errorf("%s is %v, want %v", path, got, want)
	}
}

// Messages have no field that no struct has.
func TestMessages_HaveNoOtherFields(t *testing.T) {
	seen := map[protoreflect.FullName]bool{}
	var visit func(of reflect.Type, message protoreflect.MessageDescriptor)
	visit = func(of reflect.Type, message protoreflect.MessageDescriptor) {
		for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice {
			of = of.Elem()
		}
		if message == nil || of == typeEvents.Elem() || of.Kind() != reflect.Struct || seen[message.FullName()] {
			return
		}
		seen[message.FullName()] = true
		used := map[protoreflect.FieldNumber]bool{}
		err := eachField(of, message, func(index int, field protoreflect.FieldDescriptor) error {
			used[field.Number()] = true
			visit(of.Field(index).Type, field.Message())
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		for i := range message.Fields().Len() {
			if field := message.Fields().Get(i); !used[field.Number()] {
				t.Errorf("%v is in no struct", field.FullName())
			}
		}
	}
	visit(reflect.TypeFor[session.State](), (&handoverv1.Registry{}).ProtoReflect().Descriptor())
	if len(seen) < 10 {
		t.Errorf("only %d messages", len(seen))
	}
}

// A state that is damaged, or of a version that cannot be read, is an error.
func TestOpen_RefusesWhatItCannotRead(t *testing.T) {
	openBytes := func(data []byte) error {
		t.Helper()
		file, err := os.CreateTemp(t.TempDir(), "state")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = file.Close() }()
		if _, err := file.Write(data); err != nil {
			t.Fatal(err)
		}
		state, err := open(file, descriptors{}.file)
		state.Release()
		return err
	}
	_, _, sealed := seal(t)
	data := content(t, sealed)
	if err := openBytes(data); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{0, 1, 7, 8, 9, len(data) / 2, len(data) - 1} {
		if err := openBytes(data[:n]); err == nil {
			t.Errorf("the first %d of %d bytes are a state", n, len(data))
		}
	}
	newer := strings.Replace(string(data), "\x10\x01", "\x10\x63", 1) // min_reader_version
	if err := openBytes([]byte(newer)); err == nil || !strings.Contains(err.Error(), "v7.8.9") || !strings.Contains(err.Error(), "version 1") {
		t.Errorf("a state of a later version: %v", err)
	}
}

func TestCloseEachOnExec(t *testing.T) {
	fd, err := unix.Open(os.DevNull, unix.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := closeEachOnExec(); err != nil {
		t.Fatal(err)
	}
	if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("flags %#x, %v", flags, err)
	}
}
