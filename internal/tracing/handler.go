package tracing

import (
	"cmp"
	"net/http"
	"strings"

	"github.com/execwire/execwire/internal/tracecontext"
)

// Handler returns a handler that records a span for each request to next that belongs to a
// trace. It is named after the pattern of an http.ServeMux in next. FromContext returns it
// for the context of the request. A nil tracer returns next.
func (t *Tracer) Handler(next http.Handler) http.Handler {
	if t == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		parent := tracecontext.Parse(r.Header.Get(tracecontext.ParentKey), strings.Join(r.Header.Values(tracecontext.StateKey), ","))
		if !parent.Sampled() {
			next.ServeHTTP(w, r)
			return
		}
		span := t.Start(parent, "", Server)
		span.SetString("http.request.method", r.Method[:min(len(r.Method), maxNameBytes)])
		r = r.WithContext(NewContext(r.Context(), span))
		next.ServeHTTP(w, r)
		span.name = cmp.Or(span.name, r.Pattern, "HTTP")
		span.End(span.refused >= http.StatusInternalServerError)
	})
}

// SetName names the span of a request that has no pattern. It is called before the handler returns.
func (s *Span) SetName(name string) {
	if s != nil {
		s.name = name
	}
}

// Refused records that a request was answered with an error: a status of HTTP and a code.
// That of a caller that was not authenticated is not recorded: it must not displace others.
func (s *Span) Refused(status int, code string) {
	if s == nil {
		return
	}
	s.refused = status
	s.SetInt("http.response.status_code", int64(status))
	s.SetString("error.type", code)
}
