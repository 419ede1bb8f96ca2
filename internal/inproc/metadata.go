package inproc

import (
	"context"
	"fmt"
	"maps"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// outgoing returns what the handler will find as incoming metadata: a copy of
// the caller's outgoing metadata, and what the call's own credentials add. It
// fails if ctx has ended: such a call does not begin.
func outgoing(ctx context.Context, method string, creds credentials.PerRPCCredentials) (metadata.MD, error) {
	if err := ctx.Err(); err != nil {
		return nil, status.FromContextError(err).Err()
	}
	md, ok := metadata.FromOutgoingContext(ctx) // a copy, with keys in lower case
	if !ok {
		md = metadata.MD{}
	}
	if err := validate(md); err != nil {
		return nil, err
	}
	dropReserved(md)
	if creds == nil {
		return md, nil
	}
	ctx = credentials.NewContextWithRequestInfo(ctx, credentials.RequestInfo{Method: method, AuthInfo: AuthInfo{}})
	added, err := creds.GetRequestMetadata(ctx, audience(method))
	if err != nil {
		if _, ok := status.FromError(err); ok {
			return nil, err
		}
		return nil, status.Errorf(codes.Internal, "transport: per-RPC creds failed due to error: %v", err)
	}
	for k, v := range added {
		md.Append(k, v)
	}
	return md, nil
}

func audience(method string) string {
	service := method[:max(strings.LastIndexByte(method, '/'), 0)]
	return "inproc://" + Addr{}.String() + service
}

// validate holds metadata to what HTTP/2 can carry, with the errors of grpc-go.
func validate(md metadata.MD) error {
	for k, vs := range md {
		if err := validatePair(k, vs); err != nil {
			return status.Error(codes.Internal, err.Error())
		}
	}
	return nil
}

func validatePair(key string, values []string) error {
	switch {
	case key == "":
		return fmt.Errorf("there is an empty key in the header")
	case key[0] != ':' && strings.ContainsFunc(key, illegalInKey):
		return fmt.Errorf("header key %q contains illegal characters not in [0-9a-z-_.]", key)
	case strings.HasSuffix(key, "-bin"):
		return nil
	}
	for _, v := range values {
		if strings.ContainsFunc(v, notPrintable) {
			return fmt.Errorf("header key %q contains value with non-printable ASCII characters", key)
		}
	}
	return nil
}

func illegalInKey(r rune) bool {
	return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '.' && r != '-' && r != '_'
}

func notPrintable(r rune) bool { return r < 0x20 || r > 0x7e }

// merge returns a copy of both, without the keys that belong to the transport.
func merge(to, md metadata.MD) metadata.MD {
	merged := metadata.Join(to, md)
	dropReserved(merged)
	return merged
}

// dropReserved removes the keys that belong to the transport, silently, as a
// wire does.
func dropReserved(md metadata.MD) {
	maps.DeleteFunc(md, func(key string, _ []string) bool { return isReserved(key) })
}

func isReserved(key string) bool {
	if strings.HasPrefix(key, ":") {
		return true
	}
	switch key {
	case "content-type", "user-agent", "host", "te", "grpc-message-type",
		"grpc-encoding", "grpc-message", "grpc-status", "grpc-timeout":
		return true
	}
	return false
}
