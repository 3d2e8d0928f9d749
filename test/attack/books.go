// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/schedulerapi"
	"github.com/kubedevice/kubedevice/test/await"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/image"
	"github.com/kubedevice/kubedevice/test/kube"
)

// apiPort is where the scheduler serves its API, on 127.0.0.1 of the control plane.
const apiPort = "10262"

// books are attempts to make the scheduler believe that a device is held, or free, which is not.
func books() []*Attempt {
	attempts := []*Attempt{
		{
			ID: "books-forged", Who: Tenant,
			What:    "creates a pod with a node and an allocation, whose image cannot be had: it blocks the device",
			Defence: Policies, Want: policyElse(mayWrite, Want{Outcome: NoEffect}), Sample: true,
			Try: booksOfForged(func(ctx context.Context, s *Stage) (*corev1.Pod, error) {
				tenant, err := s.tenant(ctx)
				if err != nil {
					return nil, err
				}
				pod := s.forgedPod()
				pod.Spec.Containers[0].Image = "localhost/none:1"
				return tenant.CreatePod(ctx, pod)
			}),
		},
		{
			ID: "books-bound", Who: Controller,
			What:    "binds a pod with an allocation, whose image cannot be had: it blocks the device",
			Defence: Policies, Want: policyElse(maySend, Want{Outcome: NoEffect}),
			Try: booksOfForged(func(ctx context.Context, s *Stage) (*corev1.Pod, error) {
				controller, err := s.controller(ctx)
				if err != nil {
					return nil, err
				}
				pod := s.unscheduledPod()
				pod.Spec.Containers[0].Image = "localhost/none:1"
				if pod, err = controller.CreatePod(ctx, pod); err != nil {
					return nil, err
				}
				return pod, s.bind(ctx, controller, pod,
					map[string]string{deviceinfo.Annotation: s.allocation(pod.Name)})
			}),
		},
	}
	seal := func(patch string) Try {
		return func(ctx context.Context, s *Stage) (Got, error) {
			controller, err := s.controller(ctx)
			if err != nil {
				return Got{}, err
			}
			own, err := s.victim(ctx)
			if err != nil {
				return Got{}, err
			}
			err = mergePatch(ctx, controller, own.pod, []byte(patch))
			if got, refused, err := refusal(err); refused || err != nil {
				return got, err
			}
			return s.staysHeld(ctx, own.device)
		}
	}
	attempts = append(attempts, &Attempt{
		ID: "books-seal-removed", Who: Controller, What: "removes the seal of its running pod: the device seems free",
		Defence: Policies, Alone: true, Try: seal(`{"metadata":{"annotations":{"KubeDevice/Seal":null}}}`),
		// Without seals, the annotation has no effect.
		Want: map[Setting]Want{
			Both:          {RefusedByAPIServer, "may write or remove the annotation KubeDevice/Seal"},
			SealsAlone:    {Outcome: NoEffect},
			PoliciesAlone: {Outcome: NoEffect},
		},
		Off: Off{
			How: "no policies, no seals, and it removes the allocation, which counts then",
			Try: seal(`{"metadata":{"annotations":{"KubeDevice/Seal":null,"KubeDevice/DeviceInfo":null}}}`),
		},
	})
	attempts = append(attempts, &Attempt{
		ID: "books-generation", Who: Controller,
		What:    "gives its running pod a seal of a later generation, with a key of its own, for no devices",
		Defence: Policies, Alone: true, Try: laterGeneration,
		Want: map[Setting]Want{
			Both:          {RefusedByAPIServer, "only the device scheduler"},
			SealsAlone:    {Outcome: NoEffect},
			PoliciesAlone: {RefusedByAPIServer, "only the device scheduler"},
		},
		Off: Off{
			How: "no policies, no seals, and it removes the allocation, which counts then",
			Try: seal(`{"metadata":{"annotations":{"KubeDevice/Seal":null,"KubeDevice/DeviceInfo":null}}}`),
		},
	})
	for _, change := range []struct {
		id, what, refusal string
		write             func(ctx context.Context, client *kube.Client, pod *corev1.Pod) error
	}{
		{"books-removed", "removes the allocation of its running pod: the device seems free", mayChange,
			func(ctx context.Context, client *kube.Client, pod *corev1.Pod) error {
				return mergePatch(ctx, client, pod, annotate(nil))
			}},
		{"books-removed-status", "removes it through the pod's status", mayChange,
			func(ctx context.Context, client *kube.Client, pod *corev1.Pod) error {
				return mergePatch(ctx, client, pod, annotate(nil), "status")
			}},
		{"books-request", "writes a request in its place", mayChange,
			func(ctx context.Context, client *kube.Client, pod *corev1.Pod) error {
				return mergePatch(ctx, client, pod, annotate(`{"requests":{"gpu/gpu-generate-topology":1}}`))
			}},
		{"books-garbage", "writes in its place what is not JSON", mayChange,
			func(ctx context.Context, client *kube.Client, pod *corev1.Pod) error {
				return mergePatch(ctx, client, pod, annotate(`{`))
			}},
		{"books-empty", "writes an empty annotation in its place", mayChange,
			func(ctx context.Context, client *kube.Client, pod *corev1.Pod) error {
				return mergePatch(ctx, client, pod, annotate(`{}`))
			}},
	} {
		attempts = append(attempts, &Attempt{
			ID: change.id, Who: Controller, What: change.what, Defence: Policies, Alone: true,
			Want: policyElse(change.refusal, Want{Outcome: NoEffect}),
			Try: func(ctx context.Context, s *Stage) (Got, error) {
				controller, err := s.controller(ctx)
				if err != nil {
					return Got{}, err
				}
				own, err := s.victim(ctx)
				if err != nil {
					return Got{}, err
				}
				if got, refused, err := refusal(change.write(ctx, controller, own.pod)); refused || err != nil {
					return got, err
				}
				return s.staysHeld(ctx, own.device)
			},
		})
	}
	return attempts
}

// staysHeld finds out whether a device of the node scheduled stays held in the scheduler's books.
// The node may take some time to report a holder whose allocation counts no more.
func (s *Stage) staysHeld(ctx context.Context, device string) (Got, error) {
	var held []string
	ctx, cancel := context.WithTimeout(ctx, undoLimit)
	defer cancel()
	err := await.Until(ctx, "pod victim to hold "+device, func(ctx context.Context) (bool, error) {
		now, err := s.holders(ctx, s.node(scheduled).Name, device)
		held = now
		return slices.Contains(now, s.namespace+"/victim"), err
	})
	switch {
	case err == nil:
		return Got{NoEffect, fmt.Sprintf("%q hold %s", held, device)}, nil
	case ctx.Err() != nil:
		return Got{Succeeds, device + " is held, and seems free"}, nil
	default:
		return Got{}, err
	}
}

// booksOfForged makes a forged pod and finds out whether the scheduler believes that it holds the
// stage's device.
func booksOfForged(forge func(ctx context.Context, s *Stage) (*corev1.Pod, error)) Try {
	return func(ctx context.Context, s *Stage) (Got, error) {
		pod, err := forge(ctx, s)
		for wrapped := err; wrapped != nil; wrapped = errors.Unwrap(wrapped) {
			if got, refused, _ := refusal(wrapped); refused {
				return got, nil
			}
		}
		if err != nil {
			return Got{}, err
		}
		holders, err := s.holders(ctx, s.node(forged).Name, s.device)
		if err != nil {
			return Got{}, err
		}
		if len(holders) > 0 {
			return Got{Succeeds, fmt.Sprintf("%q hold %s, says the scheduler", holders, s.device)}, nil
		}
		return Got{NoEffect, "no pod holds " + s.device + ", whichever device " + pod.Name + " names"}, nil
	}
}

// holders returns who holds a device in the scheduler's books, after the scheduler has seen every
// change of a pod that was made before.
func (s *Stage) holders(ctx context.Context, node, device string) ([]string, error) {
	if err := s.barrier(ctx); err != nil {
		return nil, err
	}
	var status int
	var content string
	for {
		var err error
		status, content, err = s.api(ctx, s.admin.Config, schedulerapi.NodesPath+"?name="+node)
		if err != nil {
			return nil, err
		}
		if status != http.StatusTooManyRequests {
			break
		}
		select {
		case <-time.After(time.Second): // what Retry-After says: all attempts are one user's
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	var list schedulerapi.NodeList
	if err := json.Unmarshal([]byte(content), &list); err != nil || status != http.StatusOK {
		return nil, fmt.Errorf("read the scheduler's API: %d %q: %w", status, content, err)
	}
	holders := []string{}
	for _, node := range list.Items {
		for _, shown := range node.Devices {
			if path.Base(shown.Path) != device {
				continue
			}
			for _, resource := range shown.Resources {
				for _, holder := range resource.Holders {
					holders = append(holders, holder.Namespace+"/"+holder.Pod)
				}
			}
		}
	}
	return holders, nil
}

// barrier waits until the scheduler has bound a pod that was created just now. It has then seen
// every earlier change of pods.
func (s *Stage) barrier(ctx context.Context) error {
	pod := kube.NewPod("", image.Busybox, clustertest.Idle...)
	pod.GenerateName, pod.Namespace = "barrier-", s.namespace
	created, err := s.admin.CreatePod(ctx, clustertest.On(s.node(scheduled).Name, pod))
	if err != nil {
		return err
	}
	if _, err := s.admin.AwaitPod(ctx, created, "to be scheduled", kube.Scheduled); err != nil {
		return err
	}
	return s.admin.CoreV1().Pods(s.namespace).Delete(ctx, created.Name, metav1.DeleteOptions{})
}

// api reads from the scheduler's port for its API with the credentials of a client's
// configuration.
func (s *Stage) api(ctx context.Context, credentials *rest.Config, what string) (status int, content string,
	err error) {
	return s.get(ctx, credentials, "https://127.0.0.1:"+apiPort+what, func(ctx context.Context, network,
		address string) (net.Conn, error) {
		return s.cluster.ControlPlane().Dial(ctx, network, address)
	})
}

// get reads a URL through a dialer with the credentials of a client's configuration, nil for none.
func (s *Stage) get(ctx context.Context, credentials *rest.Config, url string,
	dial func(ctx context.Context, network, address string) (net.Conn, error)) (status int, content string, err error) {
	config := &rest.Config{}
	if credentials != nil {
		config = rest.CopyConfig(credentials)
	}
	config.Dial = dial
	config.Insecure, config.CAData, config.CAFile = true, nil, "" // the scheduler has a certificate of its own
	transport, err := rest.TransportFor(config)
	if err != nil {
		return 0, "", err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	answer, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(text), err
}
