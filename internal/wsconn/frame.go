package wsconn

import "encoding/binary"

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
	bitFinal   = 0x80
	bitControl = 0x08
	bitMasked  = 0x80
	opcodeBits = 0x0f
	lengthBits = 0x7f
)

// Values of the seven length bits that announce an extended length.
const (
	length16 = 126
	length64 = 127
)

// maxControlPayload is the maximum payload of a control frame in RFC 6455.
const maxControlPayload = 125

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
	var turned [8]byte
	for i := range turned {
		turned[i] = key[(offset+i)%len(key)]
	}
	word := binary.LittleEndian.Uint64(turned[:])
	for len(b) >= len(turned) {
		binary.LittleEndian.PutUint64(b, binary.LittleEndian.Uint64(b)^word)
		b = b[len(turned):]
	}
	for i := range b {
		b[i] ^= turned[i]
	}
}
