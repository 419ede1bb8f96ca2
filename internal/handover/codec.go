//go:build linux

package handover

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"reflect"
	"strings"
	"syscall"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	handoverv1 "github.com/execwire/execwire/gen/go/execwire/handover/v1"
	"github.com/execwire/execwire/internal/eventlog"
	"github.com/execwire/execwire/internal/process"
)

// Structs become messages field by field: those of a message have the names of the fields of
// its struct. A test finds fields that are missing on either side.

// omitted are fields that are not handed over: a process has used them.
var omitted = map[reflect.Type]map[string]bool{
	reflect.TypeFor[process.Spec](): {"Env": true, "Sandbox": true},
}

var (
	typeTime   = reflect.TypeFor[time.Time]()
	typeFile   = reflect.TypeFor[*os.File]()
	typeBytes  = reflect.TypeFor[[]byte]()
	typeEvents = reflect.TypeFor[[]eventlog.Event]()
)

// encoder writes structs into messages.
type encoder struct {
	keep *Descriptors
	data [][]byte // what spans refer to
	size uint64   // of data
}

// encode writes a struct into a message.
func (e *encoder) encode(from reflect.Value, to protoreflect.Message) error {
	return eachField(from.Type(), to.Descriptor(), func(index int, field protoreflect.FieldDescriptor) error {
		return e.field(from.Field(index), to, field)
	})
}

// eachField calls do for each field of a struct, with the field of the message.
func eachField(of reflect.Type, message protoreflect.MessageDescriptor, do func(index int, field protoreflect.FieldDescriptor) error) error {
	fields := map[string]protoreflect.FieldDescriptor{}
	for i := range message.Fields().Len() {
		field := message.Fields().Get(i)
		fields[strings.ReplaceAll(string(field.Name()), "_", "")] = field
	}
	for i := range of.NumField() {
		name := of.Field(i).Name
		if omitted[of][name] {
			continue
		}
		field := fields[strings.ToLower(name)]
		if field == nil {
			return fmt.Errorf("%v has no field for %v.%s", message.FullName(), of, name)
		}
		if err := do(i, field); err != nil {
			return fmt.Errorf("%v.%s: %w", of, name, err)
		}
	}
	return nil
}

// field sets a field of a message.
func (e *encoder) field(from reflect.Value, to protoreflect.Message, field protoreflect.FieldDescriptor) error {
	switch from.Type() {
	case typeBytes:
		if from.Len() > 0 {
			to.Set(field, protoreflect.ValueOfMessage(e.span(from.Bytes()).ProtoReflect()))
		}
		return nil
	case typeEvents:
		if from.Len() > 0 {
			to.Set(field, protoreflect.ValueOfMessage(e.events(from.Interface().([]eventlog.Event)).ProtoReflect()))
		}
		return nil
	}
	switch {
	case field.IsList():
		list := to.Mutable(field).List()
		for i := range from.Len() {
			if err := e.element(from.Index(i), field, list.NewElement, list.Append); err != nil {
				return err
			}
		}
		return nil
	case field.IsMap():
		pairs := to.Mutable(field).Map()
		for key, value := range from.Seq2() {
			set := func(v protoreflect.Value) { pairs.Set(protoreflect.ValueOfString(key.String()).MapKey(), v) }
			if err := e.element(value, field.MapValue(), nil, set); err != nil {
				return err
			}
		}
		return nil
	case from.Kind() == reflect.Pointer && from.IsNil():
		return nil
	}
	return e.element(from, field, func() protoreflect.Value { return to.NewField(field) }, func(v protoreflect.Value) { to.Set(field, v) })
}

// element passes a value, which is not repeated, to set. newMessage makes an empty message.
func (e *encoder) element(from reflect.Value, field protoreflect.FieldDescriptor, newMessage func() protoreflect.Value, set func(protoreflect.Value)) error {
	switch {
	case from.Type() == typeFile:
		fd, err := e.keep.Add(from.Interface().(syscall.Conn))
		set(protoreflect.ValueOfUint32(fd))
		return err
	case from.Type() == typeBytes:
		set(protoreflect.ValueOfMessage(e.span(from.Bytes()).ProtoReflect()))
		return nil
	case from.Type() == typeTime:
		if at := from.Interface().(time.Time); !at.IsZero() {
			set(protoreflect.ValueOfInt64(at.UnixNano()))
		}
		return nil
	case from.Kind() == reflect.Pointer:
		from = from.Elem()
	}
	switch kind := field.Kind(); {
	case kind == protoreflect.MessageKind:
		value := newMessage()
		set(value)
		return e.encode(from, value.Message())
	case kind == protoreflect.BoolKind && from.Kind() == reflect.Bool:
		set(protoreflect.ValueOfBool(from.Bool()))
	case kind == protoreflect.StringKind && from.Kind() == reflect.String:
		set(protoreflect.ValueOfString(from.String()))
	case kind == protoreflect.BytesKind && from.Kind() == reflect.Array:
		array := make([]byte, from.Len())
		reflect.Copy(reflect.ValueOf(array), from)
		set(protoreflect.ValueOfBytes(array))
	case kind == protoreflect.Int64Kind && from.CanInt():
		set(protoreflect.ValueOfInt64(from.Int()))
	case kind == protoreflect.Uint64Kind && from.CanUint():
		set(protoreflect.ValueOfUint64(from.Uint()))
	case kind == protoreflect.Uint32Kind && from.CanUint() && from.Uint() <= math.MaxUint32:
		set(protoreflect.ValueOfUint32(uint32(from.Uint())))
	default:
		return fmt.Errorf("%v %v cannot be %v", from.Type(), from, kind)
	}
	return nil
}

func (e *encoder) span(data []byte) *handoverv1.Span {
	span := &handoverv1.Span{Offset: e.size, Length: uint64(len(data))}
	e.data = append(e.data, data)
	e.size += uint64(len(data))
	return span
}

func (e *encoder) events(events []eventlog.Event) *handoverv1.Events {
	n := len(events)
	m := &handoverv1.Events{FirstSeq: events[0].Seq, Data: &handoverv1.Span{Offset: e.size},
		Kind: make([]uint32, n), Stream: make([]uint32, n), Offset: make([]uint64, n), UnixNano: make([]int64, n), Size: make([]uint32, n)}
	for i, event := range events {
		m.Kind[i], m.Stream[i], m.Offset[i] = uint32(event.Kind), uint32(event.Stream), event.Offset
		m.UnixNano[i], m.Size[i] = event.UnixNano, uint32(len(event.Data))
		e.span(event.Data)
	}
	m.Data.Length = e.size - m.Data.Offset
	return m
}

// decoder reads structs from messages.
type decoder struct {
	data []byte                   // what spans refer to; events alias it
	file func(fd uint32) *os.File // returns the file of a descriptor
}

var errSpan = errors.New("a span is outside of the data")

// decode reads a struct from a message. Its files are the struct's.
func (d *decoder) decode(from protoreflect.Message, to reflect.Value) error {
	return eachField(to.Type(), from.Descriptor(), func(index int, field protoreflect.FieldDescriptor) error {
		into := to.Field(index)
		value := from.Get(field)
		switch {
		case into.Type() == typeEvents:
			return d.events(value.Message().Interface().(*handoverv1.Events), into)
		case field.IsList():
			return d.list(value.List(), field, into)
		case field.IsMap():
			return d.pairs(value.Map(), field, into)
		case field.HasPresence() && !from.Has(field):
			return nil
		}
		return d.element(value, field, into)
	})
}

func (d *decoder) list(from protoreflect.List, field protoreflect.FieldDescriptor, into reflect.Value) error {
	if from.Len() == 0 {
		return nil
	}
	into.Set(reflect.MakeSlice(into.Type(), from.Len(), from.Len()))
	for i := range from.Len() {
		if err := d.element(from.Get(i), field, into.Index(i)); err != nil {
			return err
		}
	}
	return nil
}

func (d *decoder) pairs(from protoreflect.Map, field protoreflect.FieldDescriptor, into reflect.Value) (err error) {
	if from.Len() == 0 {
		return nil
	}
	into.Set(reflect.MakeMap(into.Type()))
	from.Range(func(key protoreflect.MapKey, value protoreflect.Value) bool {
		one := reflect.New(into.Type().Elem()).Elem()
		err = d.element(value, field.MapValue(), one)
		into.SetMapIndex(reflect.ValueOf(key.String()), one)
		return err == nil
	})
	return err
}

// element reads a value that is not repeated.
func (d *decoder) element(from protoreflect.Value, field protoreflect.FieldDescriptor, into reflect.Value) error {
	switch {
	case into.Type() == typeFile:
		if fd := from.Uint(); fd != 0 {
			into.Set(reflect.ValueOf(d.file(uint32(fd))))
		}
		return nil
	case into.Type() == typeBytes:
		data, err := d.span(from.Message().Interface().(*handoverv1.Span))
		into.SetBytes(bytes.Clone(data))
		return err
	case into.Type() == typeTime:
		if at := from.Int(); at != 0 {
			into.Set(reflect.ValueOf(time.Unix(0, at)))
		}
		return nil
	case into.Kind() == reflect.Pointer:
		into.Set(reflect.New(into.Type().Elem()))
		into = into.Elem()
	}
	overflows := false
	switch field.Kind() {
	case protoreflect.MessageKind:
		return d.decode(from.Message(), into)
	case protoreflect.BoolKind:
		into.SetBool(from.Bool())
	case protoreflect.StringKind:
		into.SetString(from.String())
	case protoreflect.BytesKind:
		if len(from.Bytes()) != into.Len() {
			return fmt.Errorf("%v has %d bytes", into.Type(), len(from.Bytes()))
		}
		reflect.Copy(into, reflect.ValueOf(from.Bytes()))
	case protoreflect.Int64Kind:
		overflows = into.OverflowInt(from.Int())
		into.SetInt(from.Int())
	case protoreflect.Uint32Kind, protoreflect.Uint64Kind:
		overflows = into.OverflowUint(from.Uint())
		into.SetUint(from.Uint())
	}
	if overflows {
		return fmt.Errorf("%v is no %v", from, into.Type())
	}
	return nil
}

func (d *decoder) span(span *handoverv1.Span) ([]byte, error) {
	offset, length, all := span.GetOffset(), span.GetLength(), uint64(len(d.data))
	if offset > all || length > all-offset {
		return nil, errSpan
	}
	return d.data[offset : offset+length : offset+length], nil
}

func (d *decoder) events(m *handoverv1.Events, into reflect.Value) error {
	n := len(m.GetKind())
	if n == 0 {
		return nil
	}
	if len(m.GetStream()) != n || len(m.GetOffset()) != n || len(m.GetUnixNano()) != n || len(m.GetSize()) != n {
		return errors.New("the lists of events differ in length")
	}
	data, err := d.span(m.GetData())
	events := make([]eventlog.Event, n)
	for i := range events {
		size := uint64(m.GetSize()[i])
		if err != nil || size > uint64(len(data)) {
			return errSpan
		}
		events[i] = eventlog.Event{Seq: m.GetFirstSeq() + uint64(i), Kind: eventlog.Kind(m.GetKind()[i]), Stream: eventlog.Stream(m.GetStream()[i]),
			Offset: m.GetOffset()[i], UnixNano: m.GetUnixNano()[i]}
		if size > 0 {
			events[i].Data = data[:size:size]
		}
		data = data[size:]
	}
	into.Set(reflect.ValueOf(events))
	return nil
}
