package jsonrpc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
)

// AppendResult appends a response, {"id":…,"result":…}. The result is
// written by [encoding/json] without HTML escaping: members in the order of the
// fields, names of a map sorted. One that cannot be written, as a channel cannot,
// becomes a response with an internal error.
func AppendResult(dst []byte, id ID, result any) []byte {
	before := len(dst)
	dst = append(dst, `{"id":`...)
	dst = id.Append(dst)
	dst = append(dst, `,"result":`...)
	dst, err := appendJSON(dst, result)
	if err != nil {
		return AppendError(dst[:before], id, Errorf(CodeInternal, "the result cannot be encoded: %v", err))
	}
	return append(dst, '}')
}

// AppendError appends a response with an error, {"error":…,"id":…}. Data that
// cannot be written is left out.
func AppendError(dst []byte, id ID, err *Error) []byte {
	dst = append(dst, `{"error":{"code":`...)
	dst = strconv.AppendInt(dst, int64(err.Code), 10)
	if err.Data != nil {
		before := len(dst)
		dst = append(dst, `,"data":`...)
		var failed error
		if dst, failed = appendJSON(dst, err.Data); failed != nil {
			dst = dst[:before]
		}
	}
	dst = append(dst, `,"message":`...)
	dst = AppendString(dst, err.Message)
	dst = append(dst, `},"id":`...)
	dst = id.Append(dst)
	return append(dst, '}')
}

// AppendRequest appends {"id":…,"method":…,"params":…}, with parameters as those
// of AppendNotification.
func AppendRequest(dst []byte, id ID, method string, params any) []byte {
	dst = append(dst, `{"id":`...)
	dst = id.Append(dst)
	dst = append(dst, ',')
	return appendCall(dst, method, params)
}

// AppendNotification appends {"method":…,"params":…}. Parameters are written as
// results are, and left out when nil. It panics if encoding/json cannot write
// them, as it cannot a channel: that is a mistake in the type.
func AppendNotification(dst []byte, method string, params any) []byte {
	return appendCall(append(dst, '{'), method, params)
}

func appendCall(dst []byte, method string, params any) []byte {
	dst = append(dst, `"method":`...)
	dst = AppendString(dst, method)
	if params != nil {
		dst = append(dst, `,"params":`...)
		var err error
		if dst, err = appendJSON(dst, params); err != nil {
			panic(fmt.Sprintf("jsonrpc: parameters of %s: %v", method, err))
		}
	}
	return append(dst, '}')
}

func appendJSON(dst []byte, value any) ([]byte, error) {
	buffer := bytes.NewBuffer(dst)
	encoder := json.NewEncoder(buffer)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return dst, err
	}
	return bytes.TrimSuffix(buffer.Bytes(), []byte("\n")), nil
}
