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
random | put role_secret # `migrate` derives the services' passwords from it; no service gets it.
printf 'postgres://counterstamp:%s@postgres:5432/counterstamp' "$(cat "$dir/postgres_password")" | put owner_database_url
printf 'redis://:%s@redis:6379' "$(cut -d' ' -f2 "$dir/redis_auth")" | put redis_url

# The same derivation as derivedPassword in packages/manifest-store/src/roles.ts; a test compares them.
for service in api preflight executor verifier reconciler; do
  password=$(printf 'cs.role-password.v1\0cs_%s' "$service" |
    openssl dgst -sha256 -hmac "$(cat "$dir/role_secret")" -binary | openssl base64 -A | tr '+/' '-_' | tr -d '=')
  printf 'postgres://cs_%s:%s@postgres:5432/counterstamp' "$service" "$password" | put "${service}_database_url"
done

# The sandbox's own two keys, which protect nothing. Put your provider's keys here instead.
printf 'rk_sandbox' | put payments_read_key
printf 'sk_sandbox' | put payments_write_key
echo "$dir is complete."
