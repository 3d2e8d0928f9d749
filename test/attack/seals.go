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
	"github.com/kubedevice/kubedevice/pkg/seal"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/image"
	"github.com/kubedevice/kubedevice/test/kube"
)

// forger makes a seal for what a pod of the attacker's claims. A nil one makes none.
type forger func(ctx context.Context, s *Stage, claimed seal.Decision) (string, error)

// seals are attempts to pass an allocation off as the scheduler's.
func seals() []*Attempt {
	var attempts []*Attempt
	for _, forgery := range []struct {
		id, what, refusal string
		forge             forger
	}{
		{"seal-garbage", "any text for a seal", "is no JWS",
			func(context.Context, *Stage, seal.Decision) (string, error) { return "sealed", nil }},
		{"seal-empty", "an empty seal", "has no seal", func(context.Context, *Stage, seal.Decision) (string, error) {
			return "", nil
		}},
		{"seal-large", "a seal of 100 KiB", "at most 4096 are read",
			func(context.Context, *Stage, seal.Decision) (string, error) { return strings.Repeat("a", 100<<10), nil }},
		{"seal-dots", "a seal of a thousand parts", "is no JWS",
			func(context.Context, *Stage, seal.Decision) (string, error) { return strings.Repeat("a.", 1000), nil }},
		{"seal-own-key", "a seal with a key of its own", "the seal is signed with key",
			func(_ context.Context, _ *Stage, claimed seal.Decision) (string, error) {
				key, err := newKey()
				if err != nil {
					return "", err
				}
				signer, err := seal.NewSigner(key)
				if err != nil {
					return "", err
				}
				return signer.Seal(claimed)
			}},
		{"seal-stolen-id", "a seal with a key of its own, under the ID of the scheduler's", "did not sign it",
			func(_ context.Context, s *Stage, claimed seal.Decision) (string, error) {
				key, err := newKey()
				if err != nil {
					return "", err
				}
				return s.sign(claimed, jose.EdDSA, key, nil)
			}},
		{"seal-none", "a seal without a signature, of algorithm none", "is no JWS",
			func(_ context.Context, s *Stage, claimed seal.Decision) (string, error) {
				header := fmt.Sprintf(`{"alg":"none","kid":%q,"typ":%q}`, s.run.keys.id, seal.Type)
				return base64url(header) + "." + base64url(content(claimed)) + ".", nil
			}},
		{"seal-public-key", "a seal with an HMAC whose secret is the certificate that everybody may read", "is no JWS",
			func(_ context.Context, s *Stage, claimed seal.Decision) (string, error) {
				return s.sign(claimed, jose.HS256, s.run.keys.certificate, nil)
			}},
		{"seal-other-algorithm", "a seal with an ECDSA key under the ID of the scheduler's", "is no JWS",
			func(_ context.Context, s *Stage, claimed seal.Decision) (string, error) {
				key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
				if err != nil {
					return "", err
				}
				return s.sign(claimed, jose.ES256, key, nil)
			}},
		{"seal-embedded-key", "a seal that brings along the key to verify it with", "did not sign it",
			func(_ context.Context, s *Stage, claimed seal.Decision) (string, error) {
				key, err := newKey()
				if err != nil {
					return "", err
				}
				return s.sign(claimed, jose.EdDSA, key, map[jose.HeaderKey]any{
					"jwk": jose.JSONWebKey{Key: key.Public(), KeyID: s.run.keys.id},
				})
			}},
		{"seal-other-type", "a seal that is a token of another kind", "the seal's type is",
			func(_ context.Context, s *Stage, claimed seal.Decision) (string, error) {
				key, err := newKey()
				if err != nil {
					return "", err
				}
				return s.sign(claimed, jose.EdDSA, key, map[jose.HeaderKey]any{jose.HeaderType: "JWT"})
			}},
		{"seal-json", "a seal in the JSON form of a JWS", "a character that no JWS has",
			func(_ context.Context, s *Stage, claimed seal.Decision) (string, error) {
				key, err := newKey()
				if err != nil {
					return "", err
				}
				text, err := s.sign(claimed, jose.EdDSA, key, nil)
				parts := strings.Split(text, ".")
				return fmt.Sprintf(`{"protected":%q,"payload":%q,"signature":%q}`, parts[0], parts[1], parts[2]), err
			}},
		{"seal-token", "the token of its service account for a seal", "is no JWS",
			func(ctx context.Context, s *Stage, _ seal.Decision) (string, error) {
				token, err := s.admin.CoreV1().ServiceAccounts(s.namespace).CreateToken(ctx, "controller",
					&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
				if err != nil {
					return "", err
				}
				return token.Status.Token, nil
			}},
	} {
		attempts = append(attempts, &Attempt{
			ID: forgery.id, Who: Controller, What: "binds a pod with an allocation and " + forgery.what, Defence: Seals,
			Want: policyElse(maySend, Want{RefusedByNode, forgery.refusal}),
			Try: bindForged(func(ctx context.Context, s *Stage, client *kube.Client, pod *corev1.Pod) error {
				text, err := forgery.forge(ctx, s, s.claim(pod))
				if err != nil {
					return err
				}
				return s.bind(ctx, client, pod, map[string]string{
					deviceinfo.Annotation: s.allocation(pod.Name), seal.Annotation: text,
				})
			}),
		})
	}
	attempts[4].Sample = true
	return append(attempts,
		&Attempt{
			ID: "seal-other-pod", Who: Tenant,
			What:    "creates a pod with the allocation and the seal of a pod that is gone",
			Defence: Seals, Want: policyElse("only the device scheduler may write", Want{RefusedByNode,
				"the seal is for pod"}),
			Try: replay("copied"), Sample: true, Alone: true,
		},
		&Attempt{
			ID: "seal-replayed", Who: Tenant,
			What:    "creates a pod of the same name again, with the allocation and the seal of the first one",
			Defence: Seals, Want: policyElse("only the device scheduler may write", Want{RefusedByNode,
				"the seal is for pod"}),
			Try: replay("victim"), Alone: true,
		},
		&Attempt{
			ID: "seal-changed-allocation", Who: Tenant,
			What: "changes the allocation of a pod that the scheduler has bound and whose image cannot be had yet, " +
				"then corrects the image",
			Defence: Seals, Want: policyElse(mayWrite, Want{RefusedByNode, "another allocation"}),
			Try:   changeBeforeStart,
			Modes: proxyAlone, // with NRI, what the pod had when its sandbox was created counts
			Alone: true,       // the scheduler chooses among the devices of all attempts
		},
	)
}

// replay makes a tenant create a pod with what the scheduler wrote on one that is gone. The
// scheduler would give that one's device to other attempts.
func replay(name string) Try {
	return func(ctx context.Context, s *Stage) (Got, error) {
		tenant, err := s.tenant(ctx)
		if err != nil {
			return Got{}, err
		}
		victim, err := s.victim(ctx)
		if err != nil {
			return Got{}, err
		}
		if err := s.admin.DeletePod(ctx, victim.pod); err != nil {
			return Got{}, err
		}
		s.device, s.card = victim.device, victim.card
		pod := s.pod(name, 1)
		pod.Spec.NodeName = victim.pod.Spec.NodeName
		pod.Annotations = map[string]string{}
		for key, value := range victim.pod.Annotations {
			pod.Annotations[key] = strings.ReplaceAll(value, `"victim"`, `"`+name+`"`)
		}
		return s.create(ctx, tenant, pod)
	}
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
