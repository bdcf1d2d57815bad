#!/bin/sh
# Makes what is missing of deploy/secrets, the files that docker-compose.yml hands to its services. Keeps what is there.
# Usage: sh deploy/secrets.sh [folder]
set -eu
dir=${1:-$(dirname "$0")/secrets}
mkdir -p "$dir"
# The folder keeps other users of this machine out. The files must be readable by the containers' own users, so they are 0444.
chmod 700 "$dir"

random() { openssl rand -hex 32; }
put() { # put NAME: standard input becomes the secret NAME, unless it exists.
  if [ -s "$dir/$1" ]; then
    cat > /dev/null
    return
  fi
  cat > "$dir/$1.new"
  chmod 444 "$dir/$1.new"
  mv "$dir/$1.new" "$dir/$1"
}

random | put postgres_password
printf 'requirepass %s' "$(random)" | put redis_auth
random | put grafana_password # Grafana takes it at its first start.
random | put role_secret # `migrate` derives the services' passwords from it; no service gets it.
printf 'postgres://counterstamp:%s@postgres:5432/counterstamp' "$(cat "$dir/postgres_password")" | put owner_database_url
printf 'redis://:%s@redis:6379' "$(cut -d' ' -f2 "$dir/redis_auth")" | put redis_url

# The same derivation as derivedPassword in packages/manifest-store/src/roles.ts; a test compares them.
for service in api preflight executor verifier reconciler; do
  password=$(printf 'cs.role-password.v1\0cs_%s' "$service" |
    openssl dgst -sha256 -hmac "$(cat "$dir/role_secret")" -binary | openssl base64 -A | tr '+/' '-_' | tr -d '=')
  printf 'postgres://cs_%s:%s@postgres:5432/counterstamp' "$service" "$password" | put "${service}_database_url"
done

# The keys that this installation keeps outside its database: back them up with care, none can be made again. Ed25519 as one line of JWK; the
# last 32 bytes of each DER form are the key itself.
base64url() { openssl base64 -A | tr '+/' '-_' | tr -d '='; }
signing_key() {
  pem=$(openssl genpkey -algorithm ed25519)
  printf '{"kty":"OKP","crv":"Ed25519","x":"%s","d":"%s"}' \
    "$(printf '%s\n' "$pem" | openssl pkey -pubout -outform DER | tail -c 32 | base64url)" \
    "$(printf '%s\n' "$pem" | openssl pkey -outform DER | tail -c 32 | base64url)"
}
# trusted NAME PURPOSES: the public half, with the id that RFC 7638 gives it and what it may vouch for.
trusted() {
  x=$(sed 's/.*"x":"\([^"]*\)".*/\1/' "$dir/$1")
  kid=$(printf '{"crv":"Ed25519","kty":"OKP","x":"%s"}' "$x" | openssl dgst -sha256 -binary | base64url)
  printf '{"kty":"OKP","crv":"Ed25519","x":"%s","kid":"%s","purposes":[%s]}' "$x" "$kid" "$2"
}
signing_key | put installation_key
signing_key | put checkpoint_key
openssl rand 32 | base64url | put data_key
printf '{"keys":[%s,%s]}' "$(trusted installation_key '"credential","receipt"')" "$(trusted checkpoint_key '"checkpoint"')" | put trusted_keys

# The sandbox's own two keys, which protect nothing. Put your provider's keys here instead.
printf 'rk_sandbox' | put payments_read_key
printf 'sk_sandbox' | put payments_write_key
echo "$dir is complete."
