// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/pkg/seal"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/image"
	"github.com/kubedevice/kubedevice/test/kube"
)

// forgeSeal forges a seal for the pod that was created last; see forgers.
func forgeSeal(ctx context.Context, p *trial, forgery string) (Got, error) {
	forge, known := forgers[forgery]
	if !known {
		return Got{}, fmt.Errorf("there is no forgery %q", forgery)
	}
	var err error
	p.seal, err = forge(ctx, p.Stage, p.claim(p.created))
	return Got{}, err
}

// forger makes a seal for what a pod of the attacker's claims.
type forger func(ctx context.Context, s *Stage, claimed seal.Decision) (string, error)

// forgers are the ways to forge a seal.
var forgers = map[string]forger{
	"own key": func(_ context.Context, _ *Stage, claimed seal.Decision) (string, error) {
		key, err := newKey()
		if err != nil {
			return "", err
		}
		signer, err := seal.NewSigner(key)
		if err != nil {
			return "", err
		}
		return signer.Seal(claimed)
	},
	"stolen ID": withOwnKey(nil),
	"no signature": func(_ context.Context, s *Stage, claimed seal.Decision) (string, error) {
		header := fmt.Sprintf(`{"alg":"none","kid":%q,"typ":%q}`, s.run.keys.id, seal.Type)
		return base64url(header) + "." + base64url(content(claimed)) + ".", nil
	},
	"public key as secret": func(_ context.Context, s *Stage, claimed seal.Decision) (string, error) {
		return s.sign(claimed, jose.HS256, s.run.keys.certificate, nil)
	},
	"other algorithm": func(_ context.Context, s *Stage, claimed seal.Decision) (string, error) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return "", err
		}
		return s.sign(claimed, jose.ES256, key, nil)
	},
	"embedded key": withOwnKey(func(s *Stage, key ed25519.PrivateKey) map[jose.HeaderKey]any {
		return map[jose.HeaderKey]any{"jwk": jose.JSONWebKey{Key: key.Public(), KeyID: s.run.keys.id}}
	}),
	"other type": withOwnKey(func(*Stage, ed25519.PrivateKey) map[jose.HeaderKey]any {
		return map[jose.HeaderKey]any{jose.HeaderType: "JWT"}
	}),
	"JSON form": func(ctx context.Context, s *Stage, claimed seal.Decision) (string, error) {
		text, err := withOwnKey(nil)(ctx, s, claimed)
		if err != nil {
			return "", err
		}
		parts := strings.Split(text, ".")
		return fmt.Sprintf(`{"protected":%q,"payload":%q,"signature":%q}`, parts[0], parts[1], parts[2]), nil
	},
	"service account token": func(ctx context.Context, s *Stage, _ seal.Decision) (string, error) {
		token, err := s.admin.CoreV1().ServiceAccounts(s.namespace).CreateToken(ctx, "controller",
			&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		if err != nil {
			return "", err
		}
		return token.Status.Token, nil
	},
}

// withOwnKey signs with a key of the attacker's under the ID of the scheduler's, with headers.
func withOwnKey(headers func(s *Stage, key ed25519.PrivateKey) map[jose.HeaderKey]any) forger {
	return func(_ context.Context, s *Stage, claimed seal.Decision) (string, error) {
		key, err := newKey()
		if err != nil {
			return "", err
		}
		var more map[jose.HeaderKey]any
		if headers != nil {
			more = headers(s, key)
		}
		return s.sign(claimed, jose.EdDSA, key, more)
	}
}

// forgeLaterGeneration forges a seal for a later generation of the victim's allocation, without
// devices.
func forgeLaterGeneration(_ context.Context, p *trial, _ nothing) (Got, error) {
	key, err := newKey()
	if err != nil {
		return Got{}, err
	}
	signer, err := seal.NewSigner(key)
	if err != nil {
		return Got{}, err
	}
	pod := p.created
	p.seal, err = signer.Seal(seal.Decision{
		UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name, Node: pod.Spec.NodeName, Time: time.Now(),
		Allocation: seal.DigestOf(&types.PodInfo{Name: pod.Name, NodeName: pod.Spec.NodeName}), Generation: 1,
	})
	return Got{}, err
}

// replayAllocation creates a pod of that name with what the scheduler wrote on the victim.
func replayAllocation(ctx context.Context, p *trial, name string) (Got, error) {
	client, err := p.client(ctx)
	if err != nil {
		return Got{}, err
	}
	pod := p.pod(name, 1)
	pod.Spec.NodeName = p.created.Spec.NodeName
	pod.Annotations = map[string]string{}
	for key, value := range p.created.Annotations {
		pod.Annotations[key] = strings.ReplaceAll(value, `"victim"`, `"`+name+`"`)
	}
	p.created, err = client.CreatePod(ctx, pod)
	return Got{}, err
}

// changeBeforeStart changes a pod's allocation between the scheduler's Binding and the creation of
// the first container, at which the node would keep it.
func changeBeforeStart(ctx context.Context, s *Stage) (Got, error) {
	tenant, err := s.tenant(ctx)
	if err != nil {
		return Got{}, err
	}
	pod := clustertest.On(s.node(forged).Name, s.pod("changed", 1))
	pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	pod.Spec.Containers[0].Image = "localhost/none:1"
	if pod, err = tenant.CreatePod(ctx, pod); err != nil {
		return Got{}, err
	}
	if pod, err = s.admin.AwaitPod(ctx, pod, "to be bound", kube.Scheduled); err != nil {
		return Got{}, err
	}
	if strings.Contains(pod.Annotations[deviceinfo.Annotation], string(s.card)) {
		s.device, s.card = fmt.Sprintf("gpu-%d", reservedCard), cardOf(reservedCard)
	}
	pods := tenant.CoreV1().Pods(pod.Namespace)
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		now, err := pods.Get(ctx, pod.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		now.Annotations[deviceinfo.Annotation] = s.allocationOn(now.Spec.NodeName, now.Name, s.card)
		now.Spec.Containers[0].Image = image.Busybox
		_, err = pods.Update(ctx, now, metav1.UpdateOptions{})
		return err
	})
	if got, refused, err := refusal(err); refused || err != nil {
		return got, err
	}
	return s.settle(ctx, pod)
}

// claim returns the decision that a forged pod says was made for it.
func (s *Stage) claim(pod *corev1.Pod) seal.Decision {
	info, err := deviceinfo.DecodePod(s.allocation(pod.Name))
	if err != nil {
		panic(err) // it was encoded
	}
	return seal.Decision{UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name, Node: s.node(forged).Name,
		Allocation: seal.DigestOf(info), Time: time.Now()}
}

// sign signs a decision with any key, under the ID of the scheduler's.
func (s *Stage) sign(claimed seal.Decision, algorithm jose.SignatureAlgorithm, key any,
	headers map[jose.HeaderKey]any) (string, error) {
	options := (&jose.SignerOptions{}).WithType(seal.Type).WithHeader("kid", s.run.keys.id)
	for name, value := range headers {
		options.WithHeader(name, value)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: key}, options)
	if err != nil {
		return "", err
	}
	signed, err := signer.Sign([]byte(content(claimed)))
	if err != nil {
		return "", err
	}
	return signed.CompactSerialize()
}

// content is the payload of a seal.
func content(claimed seal.Decision) string {
	return fmt.Sprintf(`{"uid":%q,"namespace":%q,"name":%q,"node":%q,"allocation":%q,"iat":%d}`, claimed.UID,
		claimed.Namespace, claimed.Name, claimed.Node, claimed.Allocation, claimed.Time.Unix())
}

func base64url(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }

func newKey() (ed25519.PrivateKey, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	return key, err
}
