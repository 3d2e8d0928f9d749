// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package containers

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/pkg/node/nrilist"
	"github.com/kubedevice/kubedevice/test/cluster"
)

// The runtime sends them to kubecri when it registers, and the CRI does not list them.
func TestTheSizeOfAContainerHasTheLabelsOfItsImage(t *testing.T) {
	const labels, each = 100, 1000
	ctx := begin(t, 2*time.Minute)
	n := takeOver(ctx, t, slices.Index(modes, cluster.ModeNRI))
	labelled := randomImage{"localhost/labelled:1", v1.ImageConfig{Entrypoint: idle, Labels: map[string]string{}}}
	for i := range labels {
		labelled.config.Labels[fmt.Sprint("label-", i)] = strings.Repeat("x", each)
	}
	n.importImages(ctx, t, labelled)
	p := pod{annotations: map[string]string{}, containers: []container{{&runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "main"}, Image: &runtimeapi.ImageSpec{Image: labelled.name},
		Labels:  map[string]string{"io.kubernetes.container.name": "main"},
		LogPath: "main.log", Linux: &runtimeapi.LinuxContainerConfig{},
	}, labelled}}}
	s, err := n.run(ctx, p)
	if err != nil {
		t.Fatal(err)
	}
	defer s.remove(ctx, t)
	id, err := s.create(ctx, p.containers[0])
	if err != nil {
		t.Fatal(err)
	}
	list, err := nrilist.New(n.conn).List(ctx)
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(list.Containers, func(c nrilist.Container) bool { return c.ID == id })
	if at < 0 {
		t.Fatalf("the container %s is not in the list", id)
	}
	if size, least := list.Containers[at].Size.Bytes, labels*each; size < least || size > 2*least {
		t.Errorf("the container has %d bytes, want more than %d", size, least)
	}
}
