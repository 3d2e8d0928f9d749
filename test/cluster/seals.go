// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/seal"
	"github.com/kubedevice/kubedevice/test/sandbox"
)

// SealKeys is the file of the scheduler's private seal keys.
func (c *Cluster) SealKeys() string { return c.layout.pki("seal-keys/private.pem") }

// SealCertificates is the file of the certificates of these keys, which kubecri reads.
func (c *Cluster) SealCertificates() string { return c.layout.pki("seal-keys/certificates.pem") }

// Seal returns the seal with which the cluster's scheduler would bind a pod to a node, with that
// annotation KubeDevice/DeviceInfo.
func (c *Cluster) Seal(pod *corev1.Pod, node, allocation string) (string, error) {
	info, err := deviceinfo.DecodePod(allocation)
	if err != nil {
		return "", err
	}
	keys, err := seal.OpenPrivateKeys(c.SealKeys())
	if err != nil {
		return "", err
	}
	return keys.Signer().Seal(seal.Decision{
		UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name, Node: node, Allocation: seal.DigestOf(info),
		Time: time.Now(),
	})
}

// sealing returns the kubecri that makes the cluster's seal keys, or nil if it has none.
func (o Options) sealing() *Program {
	at := slices.IndexFunc(o.Nodes, func(node NodeOptions) bool { return node.Kubecri != nil })
	if at < 0 || o.Seals == "" || o.Seals == seal.Off {
		return nil
	}
	return o.Nodes[at].Kubecri
}

// makeSealKey makes the first key as an administrator does, in the control plane's sandbox, so that
// Down ends the command if this process is killed.
func (c *Cluster) makeSealKey(ctx context.Context) error {
	kubecri := c.options.sealing()
	if kubecri == nil {
		return nil
	}
	var printed bytes.Buffer
	err := c.controlPlane.Run(ctx, sandbox.Command{
		Path: kubecri.Path, Args: []string{"seal-keys", "create", c.layout.pki("seal-keys")},
		Stdout: &printed, Stderr: &printed,
	})
	if err != nil {
		return fmt.Errorf("make seal keys: %w: %s", err, printed.Bytes())
	}
	return nil
}

// schedulerSeals and nodeSeals are the arguments about seals of a scheduler and of a kubecri.
func (c *Cluster) schedulerSeals() []string {
	if c.options.sealing() == nil {
		return nil
	}
	return []string{"--device-seal-key=" + c.SealKeys(), "--device-seal-mode=" + string(c.options.Seals)}
}

func (c *Cluster) nodeSeals() []string {
	if c.options.sealing() == nil {
		return nil
	}
	return []string{"--seal-certificates=" + c.SealCertificates(), "--seal-mode=" + string(c.options.Seals)}
}
