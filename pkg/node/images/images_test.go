// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/api"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/pkg/node/nribound"
)

// runtime answers calls of the CRI.
type runtime struct {
	answer *runtimeapi.ImageStatusResponse
	err    error
	calls  int
}

func (r *runtime) Invoke(_ context.Context, _ string, request, reply any, _ ...grpc.CallOption) error {
	r.calls++
	if !request.(*runtimeapi.ImageStatusRequest).GetVerbose() {
		return errors.New("not verbose: nothing is said of the configuration")
	}
	if r.err == nil {
		proto.Merge(reply.(proto.Message), r.answer)
	}
	return r.err
}

func (*runtime) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, errors.ErrUnsupported
}

func answerOf(id, info string) *runtimeapi.ImageStatusResponse {
	return &runtimeapi.ImageStatusResponse{
		Image: &runtimeapi.Image{Id: id}, Info: map[string]string{"info": info},
	}
}

const containerds = `{"chainID":"sha256:1",` +
	`"imageSpec":{"architecture":"amd64","config":{"Env":["A=1","A=2","B","C="]}}}`

func TestTheVariablesOfAnImageAreInTheirOrderAndReadOnce(t *testing.T) {
	r := &runtime{answer: answerOf("sha256:0", containerds)}
	cache := NewCache(r)
	for range 2 {
		image, err := cache.Image(t.Context(), &runtimeapi.ImageSpec{Image: "sha256:0"})
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, one := range image.Variables {
			all = append(all, one.GetKey()+"="+string(one.GetValue()))
		}
		if got := strings.Join(all, " "); got != "A=1 A=2 C=" {
			t.Errorf("got %s", got)
		}
	}
	if r.calls != 1 {
		t.Errorf("%d calls", r.calls)
	}
	for range 2 { // what the name means may change
		if _, err := cache.Image(t.Context(), &runtimeapi.ImageSpec{Image: "busybox:latest"}); err != nil {
			t.Fatal(err)
		}
	}
	if r.calls != 3 {
		t.Errorf("%d calls", r.calls)
	}
}

func TestPartsThatAnImageAddsAreCounted(t *testing.T) {
	long := strings.Repeat("x", 1000)
	r := &runtime{answer: answerOf("sha256:0", `{"imageSpec":{"config":{"Env":["A=`+long+`"],"Entrypoint":["`+long+
		`"],"Cmd":["`+long+`","`+long+`"],"Labels":{"a":"`+long+`","b":"`+strings.Repeat(long, 5)+`"},"Volumes":{"/`+
		long+`":{},"b/`+long+`":{}}}}}`)}
	image, err := NewCache(r).Image(t.Context(), &runtimeapi.ImageSpec{Image: "sha256:0"})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		config *runtimeapi.ContainerConfig
		args   int
	}{
		"nothing of its own": {&runtimeapi.ContainerConfig{}, 3},
		"its own arguments":  {&runtimeapi.ContainerConfig{Args: []string{"x"}}, 1},
		"its own command":    {&runtimeapi.ContainerConfig{Command: []string{"x"}}, 0},
	} {
		got := image.Contents(test.config)
		if kilobytes := got.Args / 1000; kilobytes != test.args || got.Variables/1000 != 1 || got.Labels/1000 != 1 ||
			got.Mounts/1000 != 2 {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestAnImageKeepsOnlyWhatTakesLittleMemory(t *testing.T) {
	for name, test := range map[string]struct {
		variables []string
		volume    string
		leftOut   bool
	}{
		"as many as CUDA's images have": {slices.Repeat([]string{"NAME=" + strings.Repeat("b", 80)}, 100), "/x", false},
		"a long one":                    {[]string{"A=" + strings.Repeat("b", largestKept)}, "/x", true},
		"many empty ones":               {slices.Repeat([]string{"A="}, 1000), "/x", true},
		"a long volume":                 {[]string{"A=b"}, strings.Repeat("/x", largestKept/2), true},
	} {
		r := &runtime{answer: answerOf("sha256:0", `{"imageSpec":{"config":{"Env":["`+
			strings.Join(test.variables, `","`)+`"],"Volumes":{"`+test.volume+`":{}}}}}`)}
		image, err := NewCache(r).Image(t.Context(), &runtimeapi.ImageSpec{Image: "sha256:0"})
		if err != nil {
			t.Fatal(err)
		}
		want := nribound.ContainerContents(&api.Container{Env: test.variables}).Total()
		if got := image.Sets.Variables; got != want {
			t.Errorf("%s: %d bytes, want %d", name, got, want)
		}
		if image.LeftOut != test.leftOut || (len(image.Variables) == 0) != test.leftOut ||
			slices.Equal(image.Volumes, []string{test.volume}) == test.leftOut {
			t.Errorf("%s: left out %v, %d variables, %d volumes", name, image.LeftOut, len(image.Variables),
				len(image.Volumes))
		}
	}
}

func TestAnImageOfWhichNothingIsKnownIsAnError(t *testing.T) {
	for name, r := range map[string]*runtime{
		"the runtime does not answer":    {err: errors.New("away")},
		"it does not have the image":     {answer: &runtimeapi.ImageStatusResponse{}},
		"it says nothing more":           {answer: answerOf("x", "")},
		"it says something else":         {answer: answerOf("x", `{"labels":{}}`)},
		"it says what cannot be decoded": {answer: answerOf("x", "{")},
	} {
		if image, err := NewCache(r).Image(t.Context(), &runtimeapi.ImageSpec{Image: "x"}); err == nil ||
			!strings.Contains(err.Error(), "image x: ") {
			t.Errorf("%s: %v, %v", name, image, err)
		}
	}
}
