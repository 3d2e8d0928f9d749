// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicecheck

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/node/firewall"
)

// nvidia is what NVIDIA's runtime has to add.
var nvidia = firewall.Expected{
	Vendor: "nvidia.com", Request: "NVIDIA_VISIBLE_DEVICES=GPU-1", Files: []string{"/dev/nvidia*"},
	Setup: "nvidia-ctk runtime configure",
}

func TestAContainerLacksDevicesThatNoProgramAdds(t *testing.T) {
	linked := filepath.Join(t.TempDir(), "runc")
	if err := os.Symlink("/bin/sh", linked); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		container Container
		want      bool
	}{
		"a plain runtime starts it":   {Container{Program: "runc"}, true},
		"a plain runtime with a path": {Container{Program: "/no/such/crun"}, true},
		"other devices are in it":     {Container{Program: "runc", Paths: []string{"/dev/null"}}, true},
		"its device is in it, by CDI": {Container{Program: "runc", Paths: []string{"/dev/nvidia0"}}, false},
		"a hook may add it":           {Container{Program: "runc", Hooks: true}, false},
		"NVIDIA's runtime starts it":  {Container{Program: "/bin/nvidia-container-runtime"}, false},
		"runc is another program":     {Container{Program: linked}, false},
		"a virtual machine":           {Container{}, false},
	} {
		if got := test.container.lacks(nvidia); got != test.want {
			t.Errorf("%s: lacks its device: %v, want %v", name, got, test.want)
		}
	}
}

// answer is what a runtime answers to one query.
type answer struct {
	container Container
	found     bool
	err       error
}

// scripted is a runtime that answers in order.
type scripted struct {
	answers chan answer
	created chan time.Time // that were queried
}

func (s scripted) Newest(_ context.Context, podUID, name string, created time.Time) (Container, bool, error) {
	if podUID != "u" || name != "main" {
		return Container{}, false, errors.New("another container")
	}
	s.created <- created
	a := <-s.answers
	return a.container, a.found, a.err
}

// checked is a checker that runs until the test ends, and what it has said.
type checked struct {
	*Checker
	scripted
	warnings chan string
	observed chan string
}

func (c checked) Missing(pod *corev1.ObjectReference, vendor, handler, message string) {
	c.observed <- vendor + " " + handler
	c.warnings <- pod.Name + ": " + message
}

func newChecked(t *testing.T, delays []time.Duration, answers ...answer) checked {
	c := checked{
		scripted: scripted{answers: make(chan answer, len(answers)), created: make(chan time.Time, len(answers))},
		warnings: make(chan string, 2), observed: make(chan string, 2),
	}
	for _, a := range answers {
		c.answers <- a
	}
	c.Checker = New(c.scripted, c)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.Run(ctx, delays)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return c
}

var pod = &corev1.ObjectReference{Namespace: "default", Name: "training", UID: "u"}

func TestAPodIsWarnedOnceOfAContainerWithoutItsDevices(t *testing.T) {
	before := time.Now()
	c := newChecked(t, []time.Duration{0, 0, 0},
		answer{err: errors.New("the runtime restarts")}, answer{}, answer{Container{Handler: "plain", Program: "runc"},
			true, nil})

	c.Expect(pod, "main", []firewall.Expected{nvidia})

	want := `training: container "main" runs without its devices: NVIDIA_VISIBLE_DEVICES=GPU-1 is for the container ` +
		`runtime of nvidia.com, but the runtime handler "plain" of the pod starts runc, which does not read it. ` +
		`Create the pod again with the runtimeClassName of that runtime, or make that runtime the node's default ` +
		`one (nvidia-ctk runtime configure), or have the device plugin pass CDI devices or device files`
	if got := <-c.warnings; got != want {
		t.Errorf("the warning is\n%s\nwant\n%s", got, want)
	}
	if got := <-c.observed; got != "nvidia.com plain" {
		t.Errorf("observed %q", got)
	}
	for range 3 {
		if created := <-c.created; created.Before(before) {
			t.Errorf("containers that were created since %v count, before %v", created, before)
		}
	}
	if len(c.warnings)+len(c.observed) > 0 {
		t.Error("the pod is warned twice")
	}
}

func TestAContainerThatWasNotCreatedIsNotWarnedOf(t *testing.T) {
	c := newChecked(t, []time.Duration{0, 0}, answer{}, answer{},
		answer{Container{Program: "crun"}, true, nil})
	c.Expect(pod, "main", []firewall.Expected{nvidia})
	<-c.created
	<-c.created

	c.Expect(pod, "main", []firewall.Expected{nvidia}) // it is tried again

	if got := <-c.warnings; !strings.Contains(got, "the default runtime handler of the pod starts crun") {
		t.Errorf("the warning is %s", got)
	}
	if len(c.warnings) > 0 {
		t.Error("there are two warnings of one container")
	}
}

func TestAMessageHasALimit(t *testing.T) {
	many := nvidia
	many.Request += strings.Repeat(",GPU-2", 1000)
	if got := len(message("main", many, Container{Program: "runc"})); got > 1000 {
		t.Errorf("the message has %d bytes", got)
	}
}

func TestAChecksBacklogDoesNotBlock(t *testing.T) {
	c := New(nil, nil)
	for range maxPending + 1 {
		c.Expect(pod, "main", nil)
	}
	if len(c.pending) != maxPending {
		t.Errorf("%d containers are pending, want %d", len(c.pending), maxPending)
	}
}

func TestAContainerThatWasTriedSeveralTimesIsReportedOnce(t *testing.T) {
	plain := answer{Container{Handler: "plain", Program: "runc"}, true, nil}
	c := newChecked(t, []time.Duration{50 * time.Millisecond}, plain, plain, plain)
	for range 3 {
		c.Expect(pod, "main", []firewall.Expected{nvidia})
		time.Sleep(time.Millisecond) // for another time
	}
	for range 3 {
		<-c.created // each try
	}
	<-c.warnings
	<-c.observed
	if len(c.warnings)+len(c.observed) > 0 {
		t.Error("the pod is warned twice")
	}
}
