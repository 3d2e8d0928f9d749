// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package containers

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/kubedevice/kubedevice/test/cluster"
)

// alive is how many pods a node has at a time.
const alive = 30

func TestNoRandomContainerStartsWithWhatItsVendorsRuntimeWouldObey(t *testing.T) {
	for _, of := range shared.Nodes {
		t.Run(of.Name, func(t *testing.T) {
			ctx := begin(t, 2*time.Minute+time.Duration(*created)*3*time.Second)
			before := logOf(t, of.Containerd)
			pid := of.Containerd.PID()
			n := takeOver(ctx, t, of)
			n.attempt(ctx, t)
			if of.Containerd.PID() != pid || strings.Contains(logOf(t, of.Containerd)[len(before):], "panic") {
				t.Error("containerd has ended, or panicked; see", of.Containerd.LogPath)
			}
		})
	}
}

// attempt creates random containers, and kills kubecri meanwhile.
func (n *node) attempt(ctx context.Context, t *testing.T) {
	g := newGenerator(*seed)
	images := n.giveImages(ctx, t, g)
	var sandboxes []*sandbox
	defer func() {
		for _, s := range sandboxes {
			s.remove(ctx, t)
		}
	}()
	started, refused, killed := 0, 0, 0
	for started+refused < *created {
		if killed**created < (started+refused)**times {
			killed++
			n.restart(ctx, t)
		}
		if len(sandboxes) == alive {
			sandboxes[0].remove(ctx, t)
			sandboxes = sandboxes[1:]
		}
		p := g.pod(images)
		s, err := n.run(ctx, p)
		if s == nil {
			t.Fatal(err)
		}
		sandboxes = append(sandboxes, s)
		if err != nil {
			expectRefusal(t, "a sandbox", err)
			refused++
			continue
		}
		for _, c := range p.containers {
			id, err := s.create(ctx, c)
			if err != nil {
				expectRefusal(t, "a container", err)
				refused++
				continue
			}
			started++
			config, err := n.config(id)
			if errors.Is(err, fs.ErrNotExist) {
				continue // it has ended
			}
			if err != nil {
				t.Fatal(err)
			}
			if devices := config.obeyed(); len(devices) > 0 {
				t.Errorf("container %d of image %s starts with %.300q\nits pod sets %.300q", started,
					c.GetImage().GetImage(), devices, c.GetEnvs())
			}
		}
	}
	t.Logf("%d containers were started, %d refused; kubecri was killed %d times", started, refused, killed)
	if started < *created/3 {
		t.Errorf("%d containers of %d were started", started, *created)
	}
	n.expectConnected(t, killed)
}

// restart kills kubecri, which is registered again.
func (n *node) restart(ctx context.Context, t *testing.T) {
	t.Helper()
	if err := n.Kubecri.Kill9(ctx); err != nil {
		t.Fatal(err)
	}
	if err := n.Kubecri.Start(); err != nil {
		t.Fatal(err)
	}
	n.awaitAsked(ctx, t)
}

// expectRefusal fails the test unless kubecri has refused, or the container could not be started
// for its size.
func expectRefusal(t *testing.T, what string, err error) {
	t.Helper()
	if text := err.Error(); !strings.Contains(text, "kubecri: ") && !strings.Contains(text, "argument list too long") {
		t.Errorf("%s is refused: %.500s", what, text)
	}
}

// expectConnected fails the test if the runtime has dropped kubecri.
func (n *node) expectConnected(t *testing.T, killed int) {
	t.Helper()
	const dropped = "The container runtime has ended the NRI connection"
	if times := strings.Count(logOf(t, n.Kubecri), dropped); times > 0 {
		t.Errorf("the runtime has dropped kubecri %d times", times)
	}
	const registered = "Registered with NRI"
	if times := strings.Count(logOf(t, n.Kubecri), registered); n.Endpoint() != "" && times > 0 && times != killed+1 {
		t.Errorf("kubecri was registered %d times, and killed %d times", times, killed)
	}
}

func logOf(t *testing.T, program *cluster.Component) string {
	t.Helper()
	content, err := os.ReadFile(program.LogPath)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
