package gateway

import (
	"strconv"
	"strings"

	"google.golang.org/grpc/status"

	"github.com/execwire/execwire/gateway/jsonrpc"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

func httpDisabled() *jsonrpc.Error {
	return &jsonrpc.Error{
		Code: jsonrpc.CodeMethodNotFound, Message: "http/request is switched off on this server",
		Data: map[string]string{"reason": "HTTP_DISABLED"},
	}
}

// failure is what the client is told of a request that got no response, in the
// words of the reference where it has any.
func (p *httpRequestParams) failure(err error) *jsonrpc.Error {
	switch reasonOf(err) {
	case execwirev1.ErrorReason_ERROR_REASON_INVALID_FIELD:
		return failureWith(err, p.refusal(coreInfo(err).GetMetadata()["field"], status.Convert(err).Message()))
	case execwirev1.ErrorReason_ERROR_REASON_HTTP_DISABLED:
		return httpDisabled()
	case execwirev1.ErrorReason_ERROR_REASON_HTTP_TIMED_OUT:
		if p.TimeoutMs != nil && *p.TimeoutMs == 0 {
			return failureWith(err, "http/request failed: route-aware request timed out")
		}
		return failureWith(err, p.notSent(err))
	case execwirev1.ErrorReason_ERROR_REASON_HTTP_FAILED:
		return failureWith(err, p.notSent(err))
	case execwirev1.ErrorReason_ERROR_REASON_HTTP_ADDRESS_REFUSED, execwirev1.ErrorReason_ERROR_REASON_HTTP_HEAD_TOO_LARGE:
		return failureWith(err, "http/request failed: "+status.Convert(err).Message())
	}
	return failureOf(err)
}

// notSent names the URL that was the last to be asked for.
func (p *httpRequestParams) notSent(err error) string {
	return "http/request failed: error sending request for url (" + coreInfo(err).GetMetadata()["url"] + ")"
}

// refusal is what is wrong with a parameter, by the core's field and what it says.
func (p *httpRequestParams) refusal(field, text string) string {
	switch {
	case field == "method":
		return "http/request method is invalid: invalid HTTP method"
	case field == "url" && strings.Contains(text, "has to be of http or https"):
		_, scheme, _ := strings.Cut(text, ", got ")
		return "http/request only supports http and https URLs, got " + scheme
	}
	list, member, isHeader := strings.Cut(field, "].")
	if !isHeader {
		return "http/request " + text
	}
	if member == "name" {
		return "http/request header name is invalid: invalid HTTP header name"
	}
	name := ""
	if i, err := strconv.Atoi(strings.TrimPrefix(list, "headers[")); err == nil && i < len(p.Headers) {
		name = p.Headers[i].Name
	}
	problem := strings.TrimPrefix(text, field+" ")
	if problem == "has a control character" {
		problem = "failed to parse header value"
	}
	return "http/request header value is invalid for " + shorten(name) + ": " + problem
}

// bodyFailure is what the client is told of a body that did not come to its end.
func bodyFailure(err error) *jsonrpc.Error {
	switch reasonOf(err) {
	case execwirev1.ErrorReason_ERROR_REASON_HTTP_BODY_FAILED, execwirev1.ErrorReason_ERROR_REASON_HTTP_TIMED_OUT:
		return failureWith(err, "failed to read http/request response body: "+bodyError(err))
	}
	return failureOf(err)
}
