// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package containers

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/test/await"
)

// killedPods are the pods that are created around each kill, killedCreators how many of them at the
// same time.
const killedPods, killedCreators = 8, 4

// interrupted are parts of the errors of calls during which kubecri is killed, or before it has
// inspected what was created without it. The kubelet tries again after them.
var interrupted = []string{
	"code = Unavailable", "code = DeadlineExceeded", "code = Canceled", "error reading from server", "is reserved for",
}

// A kill between two containers leaves nothing unfinished. One during creations leaves containers
// in the runtime of which neither the kubelet nor, with NRI, kubecri knows.
func TestNoContainerKeepsWhatItsVendorsRuntimeWouldObeyWhenKubecriIsKilledDuringCreations(t *testing.T) {
	for index, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			ctx := begin(t, 2*time.Minute+time.Duration(*times)*30*time.Second)
			n := takeOver(ctx, t, index)
			runtime, kubecri := logOf(t, n.Containerd), logOf(t, n.Kubecri)
			pid := n.Containerd.PID()
			g := newGenerator(*seed)
			images := n.giveImages(ctx, t, g)
			interrupted, running := 0, 0
			for range *times {
				batch := make([]pod, killedPods)
				for i := range batch {
					batch[i] = g.pod(images)
				}
				calls, alive := n.createAndKill(ctx, t, batch, g.Rand)
				interrupted, running = interrupted+calls, running+alive
			}
			t.Logf("%d kills interrupted %d calls; %d containers ran in the end", *times, interrupted, running)
			if interrupted == 0 || running == 0 {
				t.Error("no call was interrupted, or no container ran")
			}
			n.expectNotDropped(t, logOf(t, n.Kubecri)[len(kubecri):])
			n.expectRuntimeAlive(t, logOf(t, n.Containerd)[len(runtime):], pid)
		})
	}
}

// createAndKill creates pods, several at the same time, and kills kubecri when a random number of
// calls has begun. When kubecri is registered again, no container may run with what its vendor's
// runtime would obey. It returns how many calls were under way at the kill, and how many containers
// run in the end.
func (n *node) createAndKill(ctx context.Context, t *testing.T, batch []pod, r *rand.Rand) (interrupted, running int) {
	t.Helper()
	calls := callCounter{last: int64(1 + r.IntN(2*killedPods)), reached: make(chan struct{})}
	var creating errgroup.Group
	creating.SetLimit(killedCreators)
	created := make(chan error, 1)
	go func() {
		for _, p := range batch {
			creating.Go(func() error { return n.createAsKubelet(ctx, p, &calls) })
		}
		created <- creating.Wait()
	}()
	select {
	case <-calls.reached:
		interrupted = int(calls.underWay.Load())
		if err := n.Kubecri.Restart(ctx); err != nil {
			t.Fatal(err)
		}
	case err := <-created:
		t.Fatalf("all pods were created with fewer than %d calls: %v", calls.last, err)
	case <-ctx.Done():
		t.Fatal(context.Cause(ctx))
	}
	if err := <-created; err != nil {
		t.Fatal(err)
	}
	n.awaitRegistered(ctx, t)
	running = n.expectNothingObeyed(ctx, t)
	n.removeAll(ctx, t)
	return interrupted, running
}

// callCounter counts calls to the runtime, and closes reached when the last of them has begun. It
// is safe for concurrent use.
type callCounter struct {
	begun, underWay atomic.Int64
	last            int64
	reached         chan struct{}
}

func (c *callCounter) call(do func() error) error {
	c.underWay.Add(1)
	defer c.underWay.Add(-1)
	if c.begun.Add(1) == c.last {
		close(c.reached)
	}
	return do()
}

// createAsKubelet creates a pod's sandbox and containers. It tries again as the kubelet does, with
// another name in the runtime each time, unless the pod itself is the reason of a refusal. An error
// is one of the test's.
func (n *node) createAsKubelet(ctx context.Context, p pod, calls *callCounter) error {
	s, err := n.prepare(ctx, p)
	if err != nil {
		return err
	}
	try := func(what string, call func(attempt uint32) error) (refusal, err error) {
		attempt := uint32(0)
		err = await.Until(ctx, what, func(context.Context) (bool, error) {
			refusal = calls.call(func() error { return call(attempt) })
			attempt++
			return refusal == nil || !hasPart(refusal, passing) && !hasPart(refusal, interrupted), nil
		})
		return refusal, err
	}
	refusal, err := try("a sandbox of "+s.config.GetMetadata().GetName(), func(attempt uint32) error {
		s.config.Metadata.Attempt = attempt
		answer, err := n.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: s.config})
		s.id = answer.GetPodSandboxId()
		return err
	})
	if err != nil || refusal != nil {
		return err
	}
	for _, c := range p.containers {
		_, err := try("container "+c.GetMetadata().GetName(), func(attempt uint32) error {
			c.Metadata.Attempt = attempt
			_, err := s.tryToCreate(ctx, c.ContainerConfig)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// expectNothingObeyed fails the test unless kubecri ends all containers of the node that have what
// their vendors' runtimes would obey. It returns how many run then.
func (n *node) expectNothingObeyed(ctx context.Context, t *testing.T) (running int) {
	t.Helper()
	err := await.Success(ctx, "kubecri to end what has devices past the scheduler", func(ctx context.Context) error {
		list, err := n.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
			State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
		}})
		if err != nil {
			return err
		}
		running = 0
		var errs []error
		for _, c := range list.GetContainers() {
			config, err := n.config(c.GetId())
			if errors.Is(err, fs.ErrNotExist) { // it has ended meanwhile
				continue
			}
			running++
			// kubecri gives out no devices of Habana's here: then to lack a variable is no request.
			devices := slices.DeleteFunc(config.obeyed(), func(what string) bool { return what == withoutHabana })
			if len(devices) > 0 {
				err = fmt.Errorf("container %s runs with %.300q", c.GetId(), devices)
			}
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
	if err != nil {
		t.Error(err)
	}
	return running
}

// removeAll removes all pods of the test, and all sandboxes of the node, also those of tries that
// were interrupted.
func (n *node) removeAll(ctx context.Context, t *testing.T) {
	t.Helper()
	list, err := n.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range list.GetItems() {
		_, stopped := n.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: of.GetId()})
		_, removed := n.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: of.GetId()})
		if err := errors.Join(stopped, removed); err != nil {
			t.Error(err)
		}
	}
	err = shared.Client.CoreV1().Pods(n.namespace).DeleteCollection(ctx,
		metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}, metav1.ListOptions{})
	if err != nil {
		t.Error(err)
	}
}
