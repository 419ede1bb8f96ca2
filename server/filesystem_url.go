package server

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/auth"
)

// defaultFileURLAge is how long signed URLs are valid by default.
const defaultFileURLAge = 15 * time.Minute

// fileURLMethods are the HTTP methods of signed URLs.
var fileURLMethods = map[execwirev1.FileURLMethod]string{
	execwirev1.FileURLMethod_FILE_URL_METHOD_GET: http.MethodGet,
	execwirev1.FileURLMethod_FILE_URL_METHOD_PUT: http.MethodPut,
}

// SignFileURL implements the RPC.
func (s *fileSystemService) SignFileURL(ctx context.Context, req *execwirev1.SignFileURLRequest) (*execwirev1.SignFileURLResponse, error) {
	keys, most := s.server.cfg.FileURLs, s.server.limits().FileURLMaxAge
	if keys == nil {
		return nil, notImplemented("SignFileURL")
	}
	age := min(defaultFileURLAge, most)
	if req.GetExpiry() != nil {
		age = req.GetExpiry().AsDuration()
	}
	if age > most {
		return nil, invalidField("expiry", fmt.Sprintf("is %v: use at most %v (signed_url_max_age)", age, most))
	}
	signed := auth.FileURL{
		Method: fileURLMethods[req.GetMethod()], Path: path.Clean(pathOf(req)), MaxBytes: req.MaxBytes,
		Expires: time.Now().Add(age + time.Second - 1).Truncate(time.Second), // rounded up
	}
	by, _ := ctx.Value(callerKey{}).(auth.Caller)
	signed.SetCaller(by)
	location := url.URL{Path: auth.FileURLPrefix + signed.Path, RawQuery: keys.Sign(signed).Encode()}
	return &execwirev1.SignFileURLResponse{Url: location.String(), ExpireTime: timestamppb.New(signed.Expires)}, nil
}

func validateSignFileURL(m *execwirev1.SignFileURLRequest) error {
	switch {
	case fileURLMethods[m.GetMethod()] == "":
		return invalidField("method", fmt.Sprintf("cannot be %d: use GET or PUT", m.GetMethod()))
	case m.MaxBytes != nil && m.GetMethod() != execwirev1.FileURLMethod_FILE_URL_METHOD_PUT:
		return invalidField("max_bytes", "is for uploads: leave it out, or use PUT")
	case m.GetExpiry() != nil && m.GetExpiry().AsDuration() < time.Second:
		return invalidField("expiry", fmt.Sprintf("is %v: use at least a second", m.GetExpiry().AsDuration()))
	}
	return cmp.Or(validateDuration("expiry", m.GetExpiry()), validateFile(m))
}
