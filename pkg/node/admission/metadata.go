// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bufio"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// metadataPath is where metadata is in a request: the numbers of two fields.
type metadataPath struct{ config, metadata protowire.Number }

var (
	sandboxInRun      = metadataPath{1, 1}
	containerInCreate = metadataPath{2, 1}
	sandboxInCreate   = metadataPath{3, 1}
)

// metadataOf returns what can be read of the metadata in a request, without the rest of it.
func metadataOf(request io.Reader, sandbox, container metadataPath) (Pod, string) {
	inSandbox, inContainer := &runtimeapi.PodSandboxMetadata{}, &runtimeapi.ContainerMetadata{}
	r := &fieldReader{Reader: bufio.NewReader(request)}
	_ = r.each(-1, func(config protowire.Number, length int64) error {
		if config != sandbox.config && config != container.config {
			return r.skip(length)
		}
		return r.each(length, func(metadata protowire.Number, length int64) error {
			switch (metadataPath{config, metadata}) {
			case sandbox:
				return r.decode(length, inSandbox)
			case container:
				return r.decode(length, inContainer)
			}
			return r.skip(length)
		})
	})
	return Pod{
		UID: inSandbox.GetUid(), Namespace: inSandbox.GetNamespace(), Name: inSandbox.GetName(),
	}, inContainer.GetName()
}

// fieldReader reads the fields of an encoded message.
type fieldReader struct {
	*bufio.Reader
	read int64 // how many bytes
}

// maxMetadata is how long metadata is at most: its names have 253 bytes.
const maxMetadata = 4 << 10

var errNoMetadata = errors.New("it is too long for metadata")

func (r *fieldReader) ReadByte() (byte, error) {
	b, err := r.Reader.ReadByte()
	r.read++
	return b, err
}

func (r *fieldReader) skip(length int64) error {
	n, err := io.CopyN(io.Discard, r.Reader, length)
	r.read += n
	return err
}

func (r *fieldReader) decode(length int64, into proto.Message) error {
	if length > maxMetadata {
		return errNoMetadata
	}
	raw := make([]byte, length)
	n, err := io.ReadFull(r.Reader, raw)
	r.read += int64(n)
	if err != nil {
		return err
	}
	return proto.Unmarshal(raw, into)
}

// each calls visit for each field that is a message, or bytes, of a message of that length, or of
// one up to the end if that is negative. visit must read or skip it.
func (r *fieldReader) each(length int64, visit func(number protowire.Number, length int64) error) error {
	for end := r.read + length; length < 0 || r.read < end; {
		tag, err := r.varint()
		if err != nil {
			return err
		}
		number, wireType := protowire.DecodeTag(tag)
		switch wireType {
		case protowire.VarintType:
			_, err = r.varint()
		case protowire.Fixed32Type:
			err = r.skip(4)
		case protowire.Fixed64Type:
			err = r.skip(8)
		case protowire.BytesType:
			var size uint64
			if size, err = r.varint(); err == nil {
				err = visit(number, int64(size))
			}
		default:
			err = fmt.Errorf("field %d has the wire type %d", number, wireType)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *fieldReader) varint() (value uint64, err error) {
	for shift := 0; shift < 64; shift += 7 {
		b, err := r.ReadByte()
		if err != nil {
			return 0, err
		}
		value |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return value, nil
		}
	}
	return 0, errors.New("a number has no end")
}
