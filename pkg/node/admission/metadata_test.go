// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/pkg/node/images"
	"github.com/kubedevice/kubedevice/pkg/node/nribound"
)

// largeConfig returns a container with that many bytes of variables.
func largeConfig(size int) *runtimeapi.ContainerConfig {
	config := &runtimeapi.ContainerConfig{Metadata: &runtimeapi.ContainerMetadata{Name: "main"}}
	for i := 0; size > 0; i++ {
		config.Envs = append(config.Envs, &runtimeapi.KeyValue{
			Key: fmt.Sprint("V", i), Value: bytes.Repeat([]byte("x"), min(size, 1000)),
		})
		size -= 1000
	}
	return config
}

func TestAContainerThatIsTooLargeForNRIIsRefusedWithTheProxyAsWell(t *testing.T) {
	f := newFixture(t, true)
	f.pods["u"] = plain
	_, err := f.createAs(t, "u", "api", nil, largeConfig(nribound.MaxContents))
	if status.Code(err) != codes.FailedPrecondition {
		t.Fatal(err)
	}
	for _, want := range []string{`container "main"`, "default/pod-u", fmt.Sprint(nribound.MaxContents), "volumes"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q lacks %q", err, want)
		}
	}
	if _, err := f.createAs(t, "u", "api", nil, largeConfig(nribound.MaxContents-10_000)); err != nil {
		t.Error("one within the bound:", err)
	}
	annotations := map[string]string{"a": strings.Repeat("x", nribound.MaxContents)}
	if _, err := f.createAs(t, "u", "api", annotations, largeConfig(10)); status.Code(err) != codes.FailedPrecondition {
		t.Error("one whose pod is too large:", err)
	}
	if len(f.warnings) != 2 {
		t.Errorf("the pod's owner hears %q", f.warnings)
	}
}

func TestTheSizeOfAContainerIncludesItsImage(t *testing.T) {
	const half, many = nribound.MaxContents / 2, nribound.MaxStrings
	const refused, unknown = codes.FailedPrecondition, codes.Unavailable
	type contents = nribound.Contents
	for name, test := range map[string]struct {
		image images.Image
		err   error
		want  codes.Code
	}{
		"an image that sets little":        {image: images.Image{Sets: contents{Labels: 1000}}},
		"an image with large labels":       {image: images.Image{Sets: contents{Labels: half}}, want: refused},
		"an image with a long entrypoint":  {image: images.Image{Entrypoint: contents{Args: half}}, want: refused},
		"an image with a long command":     {image: images.Image{Cmd: contents{Args: half}}, want: refused},
		"an image with large volumes":      {image: images.Image{Sets: contents{Mounts: half}}, want: refused},
		"an image with many short labels":  {image: images.Image{Sets: contents{Strings: many}}, want: refused},
		"an image that is not there":       {err: status.Error(codes.NotFound, "none")},
		"a runtime that has no images":     {err: status.Error(codes.Unimplemented, "none")},
		"an image too large for an answer": {err: status.Error(codes.ResourceExhausted, "20 MiB"), want: unknown},
		"an image that is not read now":    {err: status.Error(codes.Unavailable, "away"), want: unknown},
	} {
		f := newFixture(t, true)
		f.pods["u"] = plain
		f.sizes, f.noImage = test.image, test.err
		if _, err := f.createAs(t, "u", "api", nil, largeConfig(half)); status.Code(err) != test.want {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
	}
}

// imageOf is a runtime with one image.
type imageOf images.Image

// Image implements Images.
func (i imageOf) Image(context.Context, *runtimeapi.ImageSpec) (images.Image, error) {
	return images.Image(i), nil
}

func TestAnImageWithTooManyVariablesIsRefusedByTheProxyWhereTheFirstCounts(t *testing.T) {
	f := fixtureWith(t, &gaudis{})
	f.pods["u"] = plain
	f.Images = imageOf{LeftOut: true, Sets: nribound.Contents{Variables: 70_000}}
	if _, err := f.create(t, "u", "main", "api", nil); err != nil {
		t.Errorf("without the firewall: %v", err)
	}
	f.Firewall = f.wall
	if _, err := f.create(t, "u", "main", "api", nil); status.Code(err) != codes.FailedPrecondition ||
		!strings.Contains(err.Error(), "70000 bytes") {
		t.Errorf("its first variable is not known: %v", err)
	}
}

func TestARequestThatIsTooLongIsRefusedByItsMetadataAlone(t *testing.T) {
	f := newFixture(t, true)
	sandbox := &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Uid: "u", Namespace: "default", Name: "pod-u"},
		PortMappings: []*runtimeapi.PortMapping{{HostPort: 80}}, LogDirectory: "/var/log",
	}
	create, err := proto.Marshal(&runtimeapi.CreateContainerRequest{
		PodSandboxId: "sandbox", Config: largeConfig(12 << 20), SandboxConfig: sandbox,
	})
	if err != nil {
		t.Fatal(err)
	}
	sandbox.Annotations = map[string]string{"a": strings.Repeat("x", 1<<20)}
	run, err := proto.Marshal(&runtimeapi.RunPodSandboxRequest{Config: sandbox, RuntimeHandler: "runc"})
	if err != nil {
		t.Fatal(err)
	}
	const has = "pod default/pod-u: its request to the container runtime has %d"
	for _, test := range []struct {
		err  error
		want string
	}{
		{
			f.ContainerTooLong(context.Background(), bytes.NewReader(create), len(create)),
			fmt.Sprintf(`container "main" of `+has, len(create)),
		},
		{f.SandboxTooLong(context.Background(), bytes.NewReader(run), len(run)), fmt.Sprintf(has, len(run))},
	} {
		if status.Code(test.err) != codes.FailedPrecondition || !strings.Contains(test.err.Error(), test.want) {
			t.Errorf("%v, want %s", test.err, test.want)
		}
	}
	if len(f.warnings) != 2 || len(f.outcomes) != 2 {
		t.Errorf("warnings %q, outcomes %v", f.warnings, f.outcomes)
	}
}

func FuzzMetadataOf(f *testing.F) {
	raw, err := proto.Marshal(&runtimeapi.CreateContainerRequest{
		PodSandboxId: "sandbox", Config: largeConfig(10),
		SandboxConfig: &runtimeapi.PodSandboxConfig{
			Metadata: &runtimeapi.PodSandboxMetadata{Uid: "u", Namespace: "default", Name: "pod", Attempt: 1},
		},
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Add(raw[:len(raw)-1])
	f.Add([]byte{0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01})
	f.Fuzz(func(t *testing.T, raw []byte) {
		pod, container := metadataOf(bytes.NewReader(raw), sandboxInCreate, containerInCreate)
		if len(pod.UID)+len(pod.Namespace)+len(pod.Name)+len(container) > len(raw) {
			t.Errorf("%+v, %q of %d bytes", pod, container, len(raw))
		}
	})
}
