# One image for every process: `service NAME`, `migrate`, `key create …` are arguments of the same entry point.
# docker-compose.yml shows all of them together.

# Debian's Node rather than Alpine's: the same C library as the machines that this is tested on.
FROM node:24-bookworm-slim AS build
WORKDIR /app
COPY . .
RUN npm ci --ignore-scripts --no-audit --no-fund && node_modules/.bin/tsc -b
# Without the tools, and without the embedded Postgres (120 MB), which is an optional package and of no use here.
RUN npm prune --omit=dev --omit=optional --ignore-scripts --no-audit --no-fund
# Of our own folders only what runs: no sources, no tests, no maps.
RUN find packages services apps -path '*/node_modules' -prune -o -type f ! -path '*/dist/*.js' ! -path '*/bin/*' ! -path '*/migrations/*' ! -name package.json -exec rm {} +

FROM node:24-bookworm-slim
WORKDIR /app
COPY --from=build /app/LICENSE /app/package.json ./
COPY --from=build /app/node_modules ./node_modules
COPY --from=build /app/packages ./packages
COPY --from=build /app/services ./services
COPY --from=build /app/apps ./apps
COPY --from=build /app/deploy ./deploy
# The semi-space flag keeps a worker below 100 MB. One port for all: inside a container nothing else takes it. No secret belongs here:
# each service reads its own from files (NAME_FILE).
ENV NODE_ENV=production \
    NODE_OPTIONS=--max-semi-space-size=2 \
    COUNTERSTAMP_HTTP_HOST=0.0.0.0 \
    COUNTERSTAMP_HTTP_PORT=8080 \
    SANDBOX_HOST=0.0.0.0 \
    SANDBOX_PORT=8080
EXPOSE 8080
# The image's user `node`, as numbers: Kubernetes checks runAsNonRoot only on those. Nothing below /app is writable for it.
USER 1000:1000
# A worker is ready when it really consumes. The probe's own time is node's start, about 0.1 s.
HEALTHCHECK --interval=15s --timeout=5s --start-period=20s --retries=3 \
    CMD ["node", "-e", "require('node:http').get({port:process.env.COUNTERSTAMP_HTTP_PORT,path:'/readyz',timeout:4000},(r)=>process.exit(r.statusCode===200?0:1)).on('timeout',()=>process.exit(1)).on('error',()=>process.exit(1))"]
# Exec form: node itself is PID 1, so SIGTERM reaches the process that drains.
ENTRYPOINT ["node", "/app/apps/cli/bin/counterstamp.mjs"]
CMD ["--help"]
