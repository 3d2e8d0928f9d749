// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubedevice/kubedevice/test/await"
)

// make churn has larger ones.
var (
	churnPods  = flag.Int("churn.pods", 200, "pods that come and go")
	churnNodes = flag.Int("churn.nodes", 4, "nodes of 8 devices")
	churnKills = flag.Int("churn.kills", 1, "restarts of all schedulers, and as many changes of the leader")
)

// churnTimeout leaves sandbox for a busy machine: a quiet one needs half a minute for 200 pods and
// five minutes for 2,000.
func churnTimeout() time.Duration {
	return 3*time.Minute + time.Duration(*churnPods)*400*time.Millisecond
}

// election has two schedulers elect a leader, soon after one is gone.
var election = []string{
	"--leader-elect=true", "--leader-elect-lease-duration=6s", "--leader-elect-renew-deadline=5s",
	"--leader-elect-retry-period=500ms",
}

// pair is two schedulers, one of which leads.
type pair struct {
	*testing.T
	schedulers []*process
}

// ensure starts schedulers until there are two, and waits until one of them leads, which it
// returns. A leader that is too busy to renew its lease ends itself.
func (p *pair) ensure() *process {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.Context(), 2*time.Minute)
	defer cancel()
	var leader *process
	if err := await.Until(ctx, "a scheduler to lead", func(context.Context) (bool, error) {
		p.schedulers = slices.DeleteFunc(p.schedulers, (*process).hasEnded)
		for len(p.schedulers) < 2 {
			p.schedulers = append(p.schedulers, startSchedulerWith(p.T, election))
		}
		at := slices.IndexFunc(p.schedulers, (*process).leads)
		if at >= 0 {
			leader = p.schedulers[at]
		}
		return at >= 0, nil
	}); err != nil {
		p.Fatal(err)
	}
	return leader
}

// kill kills both.
func (p *pair) kill() {
	for _, scheduler := range p.schedulers {
		scheduler.kill()
	}
}

// leads reports whether the scheduler has been elected: who loses that ends.
func (p *process) leads() bool {
	if !p.elected {
		text, err := os.ReadFile(p.log)
		if err != nil {
			p.Fatal(err)
		}
		p.elected = strings.Contains(string(text), "Successfully acquired lease")
	}
	return p.elected && !p.hasEnded()
}

// disturbances take turns, while pods come and go.
var disturbances = []struct {
	what string
	do   func(*pair)
}{
	{"all schedulers are killed", (*pair).kill},
	{"the leader is killed", func(p *pair) { p.ensure().kill() }},
	{"all schedulers are killed", (*pair).kill},
	{"the leader gets SIGTERM", func(p *pair) { p.ensure().terminate() }},
}

// Pods with one, two and four GPUs come and go, about as many as there is sandbox for. Meanwhile
// schedulers are killed, and leaders change. Each write of each pod is looked at; in the end every
// device is allocated once more.
func TestNoDeviceIsGivenTwiceOrLostThoughSchedulersRestartAndLeadersChange(t *testing.T) {
	c := newCluster(t)
	for i := range *churnNodes {
		c.node(fmt.Sprintf("n%02d", i), 8)
	}
	audit := c.audit()
	schedulers := &pair{T: t}
	schedulers.ensure()

	ctx, cancel := context.WithTimeout(t.Context(), churnTimeout())
	defer cancel()
	churning, ctx := errgroup.WithContext(ctx)
	churning.Go(func() error { return c.churn(ctx, audit, *churnPods, 6**churnNodes) })
	for i := 0; i < 2**churnKills && ctx.Err() == nil; i++ {
		// A tenth of the pods may be gone before they are bound.
		due := *churnPods * 4 * (i + 1) / (10 * *churnKills)
		if err := await.Until(ctx, "pods to be bound", func(context.Context) (bool, error) {
			schedulers.ensure()
			return audit.everBound() >= due, nil
		}); err != nil {
			break // churning says why
		}
		disturbance := disturbances[i%len(disturbances)]
		t.Logf("%d pods were bound: %s", audit.everBound(), disturbance.what)
		disturbance.do(schedulers)
		schedulers.ensure()
	}
	if err := churning.Wait(); err != nil {
		t.Fatal(err)
	}
	c.check()
	c.clearPods()

	for i := range *churnNodes {
		c.create(newPod(fmt.Sprintf("all-%02d", i), 8))
	}
	schedulers.ensure()
	c.awaitBound(*churnNodes)
	if err := audit.verdict(); err != nil {
		t.Error(err)
	}
	t.Logf("%d pods were bound to %d devices", audit.everBound(), 8**churnNodes)
}

// churn creates pods, and deletes pods to make room for them: bound ones and, now and then, one
// that may be about to be bound. No more than alive exist at any time. It returns when all that are
// left are bound.
func (c *cluster) churn(ctx context.Context, audit *auditor, total, alive int) error {
	random := rand.New(rand.NewPCG(1, 2))
	deleted := map[string]bool{}
	remove := func(pods []*corev1.Pod) error {
		pods = slices.DeleteFunc(pods, func(pod *corev1.Pod) bool { return deleted[pod.Name] })
		if len(pods) == 0 {
			time.Sleep(5 * time.Millisecond) // nothing to do before the schedulers have done something
			return nil
		}
		name := pods[random.IntN(len(pods))].Name
		deleted[name] = true
		return c.CoreV1().Pods(metav1.NamespaceDefault).Delete(ctx, name, metav1.DeleteOptions{})
	}
	for created := 0; ctx.Err() == nil; {
		bound, waiting := audit.those(true), audit.those(false)
		err := audit.verdict()
		switch {
		case err != nil:
		case created < total && created-len(deleted) < alive:
			gpus := []int64{1, 1, 1, 1, 1, 1, 2, 2, 2, 4}[random.IntN(10)]
			_, err = c.CreatePod(ctx, newPod(fmt.Sprintf("p%04d", created), gpus))
			if created++; err == nil && created%10 == 0 {
				err = remove(waiting)
			}
		case created == total && len(waiting) == 0 && len(bound) == created-len(deleted):
			return nil
		default:
			err = remove(bound)
		}
		if err != nil {
			return err
		}
	}
	return fmt.Errorf("%d pods are deleted, %d are without a node: %w", len(deleted),
		len(audit.those(false)), ctx.Err())
}
