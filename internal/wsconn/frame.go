package wsconn

import (
	"crypto/subtle"
	"encoding/binary"
)

// Opcodes of RFC 6455, section 5.2.
const (
	opContinuation = 0x0
	opText         = 0x1
	opBinary       = 0x2
	opClose        = 0x8
	opPing         = 0x9
	opPong         = 0xa
)

// Bits of the first two bytes of a frame.
const (
	bitFinal     = 0x80
	bitsReserved = 0x70
	bitControl   = 0x08
	bitMasked    = 0x80
	opcodeBits   = 0x0f
	lengthBits   = 0x7f
)

// Values of the seven length bits that announce an extended length.
const (
	length16 = 126
	length64 = 127
)

// Close codes of RFC 6455, section 7.4.1.
const (
	CodeNormal        = 1000
	CodeGoingAway     = 1001
	codeProtocol      = 1002
	codeMissing       = 1005 // of a close frame without a code
	CodePolicy        = 1008
	CodeTooLarge      = 1009
	CodeInternalError = 1011
	// CodeServiceRestart means that the client can connect again at once.
	CodeServiceRestart = 1012
)

// maxControlPayload is the maximum payload of a control frame in RFC 6455.
const maxControlPayload = 125

// maxReason is the maximum length of a reason in bytes.
const maxReason = maxControlPayload - 2

// maxHeader is the maximum size of a frame header: two bytes, the length, the
// mask.
const maxHeader = 2 + 8 + 4

// appendHeader appends the header of a frame. key is nil for an unmasked frame.
func appendHeader(dst []byte, first byte, length int, key []byte) []byte {
	var masked byte
	if key != nil {
		masked = bitMasked
	}
	dst = append(dst, first)
	switch {
	case length < length16:
		dst = append(dst, masked|byte(length))
	case length < 1<<16:
		dst = binary.BigEndian.AppendUint16(append(dst, masked|length16), uint16(length))
	default:
		dst = binary.BigEndian.AppendUint64(append(dst, masked|length64), uint64(length))
	}
	return append(dst, key...)
}

// mask applies key to b in place. b starts at offset in its frame.
func mask(b, key []byte, offset int) {
	var repeated [256]byte // the key from offset on
	for i := range len(key) {
		repeated[i] = key[(offset+i)%len(key)]
	}
	for n := len(key); n < len(repeated); n *= 2 {
		copy(repeated[n:], repeated[:n])
	}
	for len(b) > 0 {
		b = b[subtle.XORBytes(b, b, repeated[:]):]
	}
}

// sendable reports whether RFC 6455 and its registry allow code in a close frame.
func sendable(code int) bool {
	switch code {
	case 1004, 1005, 1006:
		return false
	}
	return code >= 1000 && code <= 1014 || code >= 3000 && code <= 4999
}
