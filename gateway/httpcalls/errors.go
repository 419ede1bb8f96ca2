package httpcalls

import (
	"net/url"
	"strconv"
	"strings"

	"google.golang.org/grpc/status"

	"github.com/execwire/execwire/gateway/param"
	"github.com/execwire/execwire/gateway/rpcerror"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/errorinfo"
	"github.com/execwire/execwire/internal/jsonrpc"
)

func disabled() *jsonrpc.Error {
	return &jsonrpc.Error{
		Code: jsonrpc.CodeMethodNotFound, Message: "http/request is switched off on this server",
		Data: map[string]string{"reason": "HTTP_DISABLED"},
	}
}

// failure converts an error of a request without response, with the reference's text if
// it has one.
func (p *Request) failure(err error) *jsonrpc.Error {
	switch errorinfo.Reason(err) {
	case execwirev1.ErrorReason_ERROR_REASON_INVALID_FIELD:
		return rpcerror.WithText(err, p.refusal(errorinfo.Of(err).GetMetadata()["field"], status.Convert(err).Message()))
	case execwirev1.ErrorReason_ERROR_REASON_HTTP_DISABLED:
		return disabled()
	case execwirev1.ErrorReason_ERROR_REASON_HTTP_TIMED_OUT:
		if p.TimeoutMs != nil && *p.TimeoutMs == 0 {
			return rpcerror.WithText(err, "http/request failed: route-aware request timed out")
		}
		return rpcerror.WithText(err, p.notSent(err))
	case execwirev1.ErrorReason_ERROR_REASON_HTTP_FAILED:
		return rpcerror.WithText(err, p.notSent(err))
	case execwirev1.ErrorReason_ERROR_REASON_HTTP_ADDRESS_REFUSED, execwirev1.ErrorReason_ERROR_REASON_HTTP_HEAD_TOO_LARGE:
		return rpcerror.WithText(err, "http/request failed: "+status.Convert(err).Message())
	}
	return rpcerror.Of(err)
}

// notSent returns the text for the last URL of a request.
func (p *Request) notSent(err error) string {
	return "http/request failed: error sending request for url (" + errorinfo.Of(err).GetMetadata()["url"] + ")"
}

// refusal converts an invalid field of the server's request.
func (p *Request) refusal(field, text string) string {
	switch {
	case field == "method":
		return "http/request method is invalid: invalid HTTP method"
	case field == "url":
		if u, err := url.Parse(p.URL); err == nil && u.Scheme != "" && u.Scheme != "http" && u.Scheme != "https" {
			return "http/request only supports http and https URLs, got " + u.Scheme
		}
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
	return "http/request header value is invalid for " + param.Shorten(name) + ": " + problem
}

// bodyFailure converts an error in the body.
func bodyFailure(err error) *jsonrpc.Error {
	switch errorinfo.Reason(err) {
	case execwirev1.ErrorReason_ERROR_REASON_HTTP_BODY_FAILED, execwirev1.ErrorReason_ERROR_REASON_HTTP_TIMED_OUT:
		return rpcerror.WithText(err, "failed to read http/request response body: "+bodyError(err))
	}
	return rpcerror.Of(err)
}

// responseTooLarge is the error for a body beyond the memory of the connection.
func responseTooLarge(limit int) *jsonrpc.Error {
	const setting = "http_buffered_bytes_per_connection"
	return &jsonrpc.Error{
		Code: jsonrpc.CodeLimitReached,
		Message: "http/request response bodies that are answered whole take more than " + strconv.Itoa(limit) + " bytes on this connection (" +
			setting + "): ask for it with streamResponse",
		Data: map[string]any{"setting": setting, "limit": limit, rpcerror.RetryMember: rpcerror.RetryWhenFull.Milliseconds()},
	}
}

// bodyError returns the client's text for an incomplete body.
func bodyError(err error) string {
	switch errorinfo.Reason(err) {
	case execwirev1.ErrorReason_ERROR_REASON_HTTP_BODY_FAILED, execwirev1.ErrorReason_ERROR_REASON_HTTP_TIMED_OUT:
		return "error decoding response body"
	}
	return status.Convert(err).Message()
}
