package auditcall

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/audit"
)

// methods returns all methods of the contract by their full names.
func methods(t *testing.T) map[string]protoreflect.MethodDescriptor {
	t.Helper()
	found := map[string]protoreflect.MethodDescriptor{}
	protoregistry.GlobalFiles.RangeFilesByPackage(execwirev1.File_execwire_v1_process_proto.Package(), func(file protoreflect.FileDescriptor) bool {
		for i := range file.Services().Len() {
			service := file.Services().Get(i)
			for j := range service.Methods().Len() {
				method := service.Methods().Get(j)
				found["/"+string(service.FullName())+"/"+string(method.Name())] = method
			}
		}
		return true
	})
	if len(found) < 40 {
		t.Fatalf("there are only %d methods", len(found))
	}
	return found
}

// TestMethods_AreRecordedOrNot requires a decision for each method.
func TestMethods_AreRecordedOrNot(t *testing.T) {
	all := methods(t)
	for name := range all {
		if isRecorded(name) == slices.Contains(unrecorded, name) {
			t.Errorf("%s must be in one of actions, reads and unrecorded", name)
		}
	}
	for _, name := range unrecorded {
		if all[name] == nil {
			t.Errorf("%s does not exist", name)
		}
	}
}

// secret is in every text and every field of bytes of a request.
const secret = "s3cr3t"

// TestDescribe_HasNoSecrets fills every field of every request, and looks for what only
// fields that are recorded may have.
func TestDescribe_HasNoSecrets(t *testing.T) {
	log, err := audit.Open(audit.Options{File: filepath.Join(t.TempDir(), "audit.log"), Argv: audit.ArgvDigest, Reads: true})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	a := &Auditor{Log: log}
	may := map[string]bool{"session": true, "process": true, "path": true, "to": true, "cwd": true, "user": true, "grantee": true, "address": true, "http_method": true}
	named := regexp.MustCompile(`"([a-z_]+)":"[^"]*` + secret)
	for name, method := range methods(t) {
		if !isRecorded(name) {
			continue
		}
		for _, message := range filled(method.Input()) {
			r := a.describe(name, message)
			if r == nil {
				continue
			}
			encoded, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			text := string(encoded)
			for _, found := range named.FindAllStringSubmatch(text, -1) {
				if !may[found[1]] {
					t.Errorf("%s: %s has what may be secret: %s", name, found[1], text)
				}
			}
			if strings.Count(text, secret) != len(named.FindAllString(text, -1)) {
				t.Errorf("%s: %s", name, text)
			}
		}
	}
}

// filled returns messages of a type with every field set, one for each choice of a oneof
// of the message itself.
func filled(of protoreflect.MessageDescriptor) (list []proto.Message) {
	choices := 1
	for i := range of.Oneofs().Len() {
		choices = max(choices, of.Oneofs().Get(i).Fields().Len())
	}
	for choice := range choices {
		list = append(list, fill(of, choice, 6).Interface())
	}
	return list
}

func newMessage(of protoreflect.MessageDescriptor) protoreflect.Message {
	found, err := protoregistry.GlobalTypes.FindMessageByName(of.FullName())
	if err != nil {
		panic(err)
	}
	return found.New()
}

func fill(of protoreflect.MessageDescriptor, choice, depth int) protoreflect.Message {
	m := newMessage(of)
	for i := range of.Fields().Len() {
		field := of.Fields().Get(i)
		if one := field.ContainingOneof(); one != nil && !one.IsSynthetic() && one.Fields().Get(choice%one.Fields().Len()) != field {
			continue
		}
		nested := field.Kind() == protoreflect.MessageKind && !field.IsMap()
		if nested && depth == 0 || field.IsMap() && field.MapValue().Kind() == protoreflect.MessageKind {
			continue
		}
		value := func(f protoreflect.FieldDescriptor) protoreflect.Value {
			switch f.Kind() {
			case protoreflect.StringKind:
				return protoreflect.ValueOfString(secret)
			case protoreflect.BytesKind:
				return protoreflect.ValueOfBytes([]byte(secret))
			case protoreflect.MessageKind:
				return protoreflect.ValueOfMessage(fill(f.Message(), choice, depth-1))
			}
			return f.Default()
		}
		switch {
		case field.IsMap():
			m.Mutable(field).Map().Set(value(field.MapKey()).MapKey(), value(field.MapValue()))
		case field.IsList():
			m.Mutable(field).List().Append(value(field))
		case field.Name() == "url":
			m.Set(field, protoreflect.ValueOfString("https://"+secret+":"+secret+"@example.org/?"+secret+"#"+secret))
		default:
			m.Set(field, value(field))
		}
	}
	return m
}
