// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/kubedevice/kubedevice/pkg/schedulerapi"
	"github.com/kubedevice/kubedevice/test/await"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/image"
	"github.com/kubedevice/kubedevice/test/kube"
)

// apiPort is where the scheduler serves its API, on 127.0.0.1 of the control plane.
const apiPort = "10262"

// seemsFree succeeds if the victim's device, on the node scheduled, seems free by the scheduler's
// books. The node may take some time to report a holder whose allocation counts no more.
func seemsFree(ctx context.Context, p *trial, _ nothing) (Got, error) {
	device := p.device
	var held []string
	ctx, cancel := context.WithTimeout(ctx, undoTimeout)
	defer cancel()
	err := await.Until(ctx, "pod victim to hold "+device, func(ctx context.Context) (bool, error) {
		now, err := p.holders(ctx, p.node(scheduled).Name, device)
		held = now
		return slices.Contains(now, p.namespace+"/victim"), err
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

// seemsHeld succeeds if a pod holds the attempt's device, on the node forged, by the scheduler's
// books.
func seemsHeld(ctx context.Context, p *trial, _ nothing) (Got, error) {
	holders, err := p.holders(ctx, p.node(forged).Name, p.device)
	if err != nil {
		return Got{}, err
	}
	if len(holders) > 0 {
		return Got{Succeeds, fmt.Sprintf("%q hold %s, says the scheduler", holders, p.device)}, nil
	}
	return Got{NoEffect, "no pod holds " + p.device}, nil
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
