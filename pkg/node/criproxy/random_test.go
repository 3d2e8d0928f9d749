// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package criproxy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/anypb"
)

func TestForwardsRandomMessagesInStreamsUnchanged(t *testing.T) {
	client := startBoth(t, echo, Options{})
	source := rand.NewChaCha8([32]byte{2})
	for range 20 {
		stream := openStream(testContext(t), t, client)
		sent := make([][]byte, 100)
		sending := make(chan error, 1)
		for i := range sent {
			sent[i] = randomMessage(source)
		}
		go func() {
			for _, message := range sent {
				if err := stream.SendMsg(&message); err != nil {
					sending <- err
					return
				}
			}
			sending <- stream.CloseSend()
		}()
		for i, want := range sent {
			if got := receive(t, stream); !bytes.Equal(got, want) {
				t.Fatalf("message %d of %d bytes came back changed", i, len(want))
			}
		}
		if err := <-sending; err != nil {
			t.Fatal(err)
		}
		var more []byte
		if err := stream.RecvMsg(&more); !errors.Is(err, io.EOF) {
			t.Fatalf("end of stream: %v, want io.EOF", err)
		}
	}
}

// randomMetadata is metadata with random binary values.
func randomMetadata(source *rand.ChaCha8) metadata.MD {
	random := rand.New(source)
	md := metadata.MD{}
	for i := range 1 + random.IntN(4) {
		key := fmt.Sprintf("invented-%d-bin", i)
		for range 1 + random.IntN(3) {
			value := make([]byte, random.IntN(200))
			source.Read(value)
			md.Append(key, string(value))
		}
	}
	return md
}

// withKeysOf returns the values of md whose keys want has.
func withKeysOf(md, want metadata.MD) metadata.MD {
	found := metadata.MD{}
	for key := range want {
		if values := md.Get(key); len(values) > 0 {
			found[key] = values
		}
	}
	return found
}

func TestForwardsRandomMetadataAndUnknownStatusDetails(t *testing.T) {
	type conversation struct {
		request, header, trailer metadata.MD
		status                   *spb.Status
	}
	var planned conversation
	var seen metadata.MD
	eachShape(t, func(t *testing.T, options Options) {
		client := startBoth(t, func(_ string, stream grpc.ServerStream) error {
			seen, _ = metadata.FromIncomingContext(stream.Context())
			if err := stream.SendHeader(planned.header); err != nil {
				return err
			}
			stream.SetTrailer(planned.trailer)
			return status.FromProto(planned.status).Err()
		}, options)
		source := rand.NewChaCha8([32]byte{3})
		for i := range 300 {
			details := make([]byte, 100)
			source.Read(details)
			planned = conversation{randomMetadata(source), randomMetadata(source), randomMetadata(source), &spb.Status{
				Code: int32(1 + i%40), Message: fmt.Sprintf("reason %d: \u2713", i),
				Details: []*anypb.Any{{TypeUrl: "type.example.com/invented.v9.Why", Value: details}},
			}}
			var header, trailer metadata.MD
			_, err := invoke(metadata.NewOutgoingContext(testContext(t), planned.request), client, "/x.Y/Z", nil,
				grpc.Header(&header), grpc.Trailer(&trailer))
			got := conversation{withKeysOf(seen, planned.request), withKeysOf(header, planned.header),
				withKeysOf(trailer, planned.trailer), status.Convert(err).Proto()}
			if diff := cmp.Diff(planned, got, cmp.AllowUnexported(conversation{}), protocmp.Transform()); diff != "" {
				t.Fatalf("conversation %d, code %v (-planned +got):\n%s", i, codes.Code(planned.status.Code), diff)
			}
		}
	}, "/x.Y/Z")
}
