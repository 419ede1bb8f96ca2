// Package reflection registers gRPC server reflection that has the comments of the contract. The
// code that protoc-gen-go generates has descriptors without comments.
package reflection

import (
	"bytes"
	"compress/gzip"
	_ "embed" // of the descriptors
	"fmt"
	"io"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/reflection"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionv1alpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
)

// descriptors is a FileDescriptorSet with comments, of execwire.v1 and what it imports;
// scripts/generate writes it.
//
//go:embed descriptors.binpb.gz
var descriptors []byte

// Register registers reflection of all services of s. It is called before s serves.
func Register(s *grpc.Server) {
	options := reflection.ServerOptions{Services: s, DescriptorResolver: resolver{}}
	reflectionv1.RegisterServerReflectionServer(s, reflection.NewServerV1(options))
	reflectionv1alpha.RegisterServerReflectionServer(s, reflection.NewServer(options))
}

// documented returns the files of the descriptors. It is called at the first request for reflection,
// which most servers never get.
var documented = sync.OnceValues(func() (*protoregistry.Files, error) {
	var set descriptorpb.FileDescriptorSet
	compressed, err := gzip.NewReader(bytes.NewReader(descriptors))
	if err == nil {
		var encoded []byte
		if encoded, err = io.ReadAll(compressed); err == nil {
			err = proto.Unmarshal(encoded, &set)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("failed to read the contract's descriptors: %w", err)
	}
	return protodesc.NewFiles(&set)
})

// resolver finds the contract's descriptors, and others, which have no comments.
type resolver struct{}

func (resolver) FindFileByPath(path string) (protoreflect.FileDescriptor, error) {
	files, err := documented()
	if err != nil {
		return nil, err
	}
	if file, err := files.FindFileByPath(path); err == nil {
		return file, nil
	}
	return protoregistry.GlobalFiles.FindFileByPath(path)
}

func (resolver) FindDescriptorByName(name protoreflect.FullName) (protoreflect.Descriptor, error) {
	files, err := documented()
	if err != nil {
		return nil, err
	}
	if descriptor, err := files.FindDescriptorByName(name); err == nil {
		return descriptor, nil
	}
	return protoregistry.GlobalFiles.FindDescriptorByName(name)
}
